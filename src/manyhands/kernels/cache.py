"""Numba's side of the kernels: this module is imported when the first one has to be compiled or loaded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import caching, event

from manyhands.kernels.ahead import digest
from manyhands.kernels.compile import waiting


class _Stamped:
    """Numba asks only whether a kernel's own file has changed, and not those of what the kernel calls."""

    _py_file: str

    def get_source_stamp(self) -> bytes:
        return digest(Path(self._py_file))


class Chosen(_Stamped, caching.UserProvidedCacheLocator):
    """Where the user has chosen a folder."""


class InTree(_Stamped, caching.InTreeCacheLocator):
    """Beside the source file."""


class UserWide(_Stamped, caching.UserWideCacheLocator):
    """In the user's cache folder, where the source file's cannot be written."""


LOCATORS = ",".join(f"{__name__}.{place.__name__}" for place in (Chosen, InTree, UserWide))


def dispatcher(function: Callable[..., Any]) -> Any:
    """Of numba, for one kernel; no two may be made at once."""
    config: Any = numba.config
    before = config.CACHE_LOCATOR_CLASSES
    if not before and Path(function.__code__.co_filename).is_file():  # sources in a zip never change
        config.CACHE_LOCATOR_CLASSES = LOCATORS
    try:
        return numba.njit(nogil=True, cache=True)(function)
    finally:
        config.CACHE_LOCATOR_CLASSES = before


class _Compiling(event.Listener):
    def on_start(self, event: event.Event) -> None:
        while waiting:
            waiting.pop()()

    def on_end(self, event: event.Event) -> None:
        pass


event.register("numba:compile", _Compiling())  # type: ignore[no-untyped-call]
