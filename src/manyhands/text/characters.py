"""What each Unicode character is to the tokeniser, and its lower case: tables for the kernels."""

import sys
from functools import cache
from html.entities import html5
from importlib.resources import files
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Bytes, Hashes, kernel

SPACE = 0  # ends a word: blanks, controls, what is not assigned
WORD = 1  # letters and digits
MARK = 2  # accents: continue a word, never begin one
SIGN = 3  # punctuation and symbols: a token of their own, or dropped
SINGLE = 4  # scripts without spaces: a token of their own, never dropped
SKIP = 5  # soft hyphens, joiners: as if they were not there

Codes = npt.NDArray[np.int32]


class Characters(NamedTuple):
    """One entry for each code point."""

    kinds: Bytes
    lower: Codes


class Entities(NamedTuple):
    """HTML's named characters, sorted by the hash of the name; ``second`` is 0 where there is one."""

    names: Hashes
    first: Codes
    second: Codes


@cache
def characters(lowering: bool = True) -> Characters:
    """The tables; without ``lowering``, every character is its own lower case."""
    with (files("manyhands.text") / "unicode.npz").open("rb") as stream:
        table = np.load(stream)
        starts = np.r_[table["starts"], sys.maxunicode + 1]
        kinds = np.repeat(table["kinds"], np.diff(starts))
        lower = np.arange(sys.maxunicode + 1, dtype=np.int32)
        if lowering:
            lower[table["upper"]] = table["lower"]
    return Characters(kinds, lower)


@kernel
def name_hash(data: Bytes, start: int, end: int) -> np.uint64:
    """FNV-1a: entity names are a few bytes long."""
    value = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):
        value = (value ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    return value


@cache
def entities() -> Entities:
    """Names with their semicolon only: ``&copy`` without one is text, as in ``?a=1&copy=2``."""
    names = [name.removesuffix(";") for name in html5 if name.endswith(";")]
    hashes = np.array(
        [name_hash(np.frombuffer(name.encode(), np.uint8), 0, len(name)) for name in names], np.uint64
    )
    order = np.argsort(hashes)
    codes = [html5[names[i] + ";"] for i in order]
    first = np.array([ord(code[0]) for code in codes], np.int32)
    second = np.array([ord(code[1]) if len(code) > 1 else 0 for code in codes], np.int32)
    return Entities(hashes[order], first, second)
