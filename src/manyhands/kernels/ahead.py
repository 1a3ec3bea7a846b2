"""Kernels that were compiled when the wheel was built: numba need not be loaded to call them.

``tools/compile_kernels.py`` makes a library for each level of processors, and a table of what they hold.
A kernel is taken from there only if the sources that it was made of are those that run.
"""

import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Callable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "compiled"
TABLE = "kernels.json"
# What LLVM calls the levels, with the flags by which Linux tells that a processor has all of one.
_V3 = {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
_V4 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
LEVELS = {"x86-64-v4": _V3 | _V4, "x86-64-v3": _V3}  # the best first
ASKS_FOR_NUMBA = ("NUMBA_CPU_NAME", "NUMBA_DISABLE_JIT")
CONTIGUOUS_ALIGNED_WRITEABLE = 0x501  # among the flags of an array
INT_BITS = 63

OURS = re.compile(r"^from (manyhands[\w.]*) import", re.MULTILINE)

Kinds = tuple[Any, ...]


@cache
def digest(file: Path) -> bytes:
    """Of a source file and all those of this package from which it takes anything."""
    text = file.read_text("utf-8")
    used = [importlib.util.find_spec(name) for name in OURS.findall(text)]
    below = [digest(Path(spec.origin)) for spec in used if spec and spec.origin]
    return hashlib.sha256(b"".join([text.encode(), *below])).digest()


def kind(argument: Any) -> Any:
    """All that a kernel's code depends on: arguments of equal kinds can go to the same code.

    >>> kind(np.zeros((2, 3), np.float32)), kind(np.zeros(4)[::2]), kind(np.uint64(1)), kind(7)
    ('<f4 2 1281', '<f8 1 1280', 'uint64', 'int')
    """
    if isinstance(argument, np.ndarray):
        return f"{argument.dtype.str} {argument.ndim} {argument.flags.num & CONTIGUOUS_ALIGNED_WRITEABLE}"
    if type(argument) is int and argument.bit_length() > INT_BITS:
        return "long"
    return type(argument).__name__


@cache
def _table() -> Any:
    """By module: the digest of its sources, and by kernel and kinds the names in the library."""
    try:
        return json.loads((FOLDER / TABLE).read_text("utf-8"))
    except FileNotFoundError:
        return {}


@cache
def _library() -> Any:
    """The best one for this processor; None if there is none that it can run."""
    if any(map(os.environ.get, ASKS_FOR_NUMBA)):
        return None
    for level, flags in LEVELS.items():
        file = FOLDER / (library_name(level) + EXTENSION_SUFFIXES[0])
        if file.is_file() and flags <= _processor_flags():
            loader = ExtensionFileLoader(library_name(level), str(file))
            spec = importlib.util.spec_from_file_location(loader.name, file, loader=loader)
            library = importlib.util.module_from_spec(spec) if spec else None
            if library:
                loader.exec_module(library)
            return library
    return None


def library_name(level: str) -> str:
    return "kernels_" + level.replace("-", "_")


@cache
def _processor_flags() -> set[str]:
    try:
        with Path("/proc/cpuinfo").open() as file:
            line = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        return set()
    return set(line.split())


def any_compiled() -> bool:
    """Whether there are kernels that were compiled ahead, for this processor."""
    return bool(_table()) and _library() is not None


def compiled_ahead(function: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """The code of a kernel, by the kinds of its arguments; nothing if it has to be compiled."""
    entry = _table().get(function.__module__)
    if not entry or function.__qualname__ not in entry["kernels"] or not _library():
        return {}
    if entry["digest"] != digest(Path(function.__code__.co_filename)).hex():
        return {}
    names = entry["kernels"][function.__qualname__]
    return {kinds: getattr(_library(), name) for kinds, name in names.items()}
