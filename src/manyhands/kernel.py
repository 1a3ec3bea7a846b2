"""How the compiled kernels are made: numba, without the GIL, kept on disk between runs."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba.core import event

P = ParamSpec("P")
R = TypeVar("R")
Item = TypeVar("Item", bound=np.generic)

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` on its first call; threads then run it side by side."""
    compiled: Callable[P, R] = numba.njit(nogil=True, cache=True)(function)
    return compiled


class _FirstCompile(event.Listener):
    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell: Callable[[], None] | None = tell

    def on_start(self, event: event.Event) -> None:
        tell, self._tell = self._tell, None
        if tell:
            tell()

    def on_end(self, event: event.Event) -> None:
        pass


def when_compiling(tell: Callable[[], None]) -> None:
    """Call ``tell`` once, if a kernel has to be compiled because none is kept on disk."""
    event.register("numba:compile", _FirstCompile(tell))  # type: ignore[no-untyped-call]


def frozen(array: npt.NDArray[Item]) -> npt.NDArray[Item]:
    """A read-only view: kernels compile once if their inputs always look alike."""
    view = array.view()
    view.flags.writeable = False
    return view
