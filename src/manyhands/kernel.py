"""How the compiled kernels are made: numba, without the GIL, kept on disk between runs."""

import hashlib
import importlib.util
import re
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import caching, cgutils, event, types
from numba.extending import intrinsic

P = ParamSpec("P")
R = TypeVar("R")
Item = TypeVar("Item", bound=np.generic)

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


OURS = re.compile(r"^from (manyhands[\w.]*) import", re.MULTILINE)


@cache
def _digest(file: Path) -> bytes:
    """Of a source file and all those of this package from which it takes anything."""
    text = file.read_text("utf-8")
    used = [importlib.util.find_spec(name) for name in OURS.findall(text)]
    below = [_digest(Path(spec.origin)) for spec in used if spec and spec.origin]
    return hashlib.sha256(b"".join([text.encode(), *below])).digest()


class _Stamped:
    """Numba asks only whether a kernel's own file has changed, and not those of what the kernel calls."""

    _py_file: str

    def get_source_stamp(self) -> bytes:
        return _digest(Path(self._py_file))


class Chosen(_Stamped, caching.UserProvidedCacheLocator):
    """Where the user has chosen a folder."""


class InTree(_Stamped, caching.InTreeCacheLocator):
    """Beside the source file."""


class UserWide(_Stamped, caching.UserWideCacheLocator):
    """In the user's cache folder, where the source file's cannot be written."""


LOCATORS = ",".join(f"{__name__}.{place.__name__}" for place in (Chosen, InTree, UserWide))


_choosing = threading.Lock()


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` on its first call; threads then run it side by side."""
    config: Any = numba.config
    with _choosing:
        before = config.CACHE_LOCATOR_CLASSES
        if not before and Path(function.__code__.co_filename).is_file():  # sources in a zip never change
            config.CACHE_LOCATOR_CLASSES = LOCATORS
        try:
            compiled: Callable[P, R] = numba.njit(nogil=True, cache=True)(function)
        finally:
            config.CACHE_LOCATOR_CLASSES = before
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


def _prefetch(typing: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        struct = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, kind, "llvm.prefetch.p0"
        )
        place = builder.bitcast(builder.gep(struct.data, [arguments[1]]), byte)
        # To be read, to be kept in every cache, data: as LLVM numbers these.
        builder.call(function, [place] + [ir.Constant(number, value) for value in (0, 3, 1)])
        return context.get_dummy_value()

    return types.void(array, index), generate


# ``prefetch(array, index)`` inside a kernel: begin to load what will be needed soon. The index counts
# all numbers of the array, row after row. Rows picked from a large table come twice as fast if each
# is asked for some rows ahead.
prefetch: Callable[[npt.NDArray[Any], np.uint64], None] = cast(Any, intrinsic(_prefetch))
AHEAD = np.uint64(16)
