"""How the compiled kernels are made: numba, without the GIL, kept on disk between runs.

Numba and its registries take a second to load, so nothing here imports it before a kernel has to be compiled.
"""

import threading
from collections.abc import Callable
from functools import update_wrapper
from importlib import import_module
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from manyhands.kernels.ahead import any_compiled, compiled_ahead, kind

P = ParamSpec("P")
R = TypeVar("R")
Item = TypeVar("Item", bound=np.generic)

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


_making = threading.Lock()


class _Kernel(Generic[P, R]):
    """A function that is compiled when it is first called."""

    def __init__(self, function: Callable[P, R]) -> None:
        update_wrapper(self, function)
        self._function = function
        self._ahead: dict[str, Callable[..., Any]] | None = None
        self._compiled: Any = None

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        if self._ahead is None:
            with _making:
                self._ahead = compiled_ahead(self._function)
        found = self._ahead.get(";".join(map(kind, arguments))) if self._ahead and not named else None
        result: R = (found or self._compiled or self.compiled())(*arguments, **named)
        return result

    def compiled(self) -> Any:
        """Numba's dispatcher."""
        with _making:
            if self._compiled is None:
                self._compiled = import_module("manyhands.kernels.cache").dispatcher(self._function)
        return self._compiled

    @property
    def _numba_type_(self) -> Any:
        """Numba asks for it when another kernel calls this one."""
        return self.compiled()._numba_type_

    def __reduce__(self) -> str:
        return self._function.__qualname__  # what holds it is found again by name


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` on its first call; threads then run it side by side."""
    return _Kernel(function)


def preload() -> None:
    """Load what kernels need, before a process forks others: each of these would take its time for it."""
    if not any_compiled():
        import_module("manyhands.kernels.cache")


class Later:
    """A module that is imported when something of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


class _Intrinsic:
    """Code for LLVM in the place of a call; ``generate`` is as ``numba.extending.intrinsic`` wants it."""

    def __init__(self, generate: Callable[..., Any]) -> None:
        self._generate = generate
        self._made: Any = None

    @property
    def _numba_type_(self) -> Any:
        context = import_module("numba.core.registry").cpu_target.typing_context
        if self._made is None:
            self._made = import_module("numba.extending").intrinsic(self._generate)
            context.refresh()
        return context.resolve_value_type(self._made)


def intrinsic(generate: Callable[..., Any]) -> Any:
    """What kernels can call."""
    return _Intrinsic(generate)


waiting: list[Callable[[], None]] = []


def when_compiling(tell: Callable[[], None]) -> None:
    """Call ``tell`` once, if a kernel has to be compiled because none is kept on disk."""
    waiting.append(tell)


def read_only(array: npt.NDArray[Item]) -> npt.NDArray[Item]:
    """A read-only view: kernels compile once if their inputs always look alike."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.setflags(write=False)
    return view


def _prefetch(typing: Any, array: Any, index: Any) -> Any:
    from llvmlite import ir  # noqa: PLC0415
    from numba.core import cgutils, types  # noqa: PLC0415

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
prefetch: Callable[[npt.NDArray[Any], np.uint64], None] = intrinsic(_prefetch)
AHEAD = np.uint64(16)
