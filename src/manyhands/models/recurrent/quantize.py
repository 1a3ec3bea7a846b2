"""Small networks: a byte for each weight, by a scale for each row; and of the words as many as fit.

Words are numbered by how often they stand in the training rows, so those that are left out are the rarest.
Biases stay as they are.
"""

from typing import Any, NamedTuple

import numpy as np

from manyhands.errors import InputError, UsageError
from manyhands.kernels.simd import Floats
from manyhands.models.model import Arrays

PACKED = "packed"
WORDS, EMBEDDING = "words", "embedding"
CODES, SCALES = ".codes", ".scales"
MOST_CODE = 127  # codes go as far to either side
LEAST_SCALE = np.float32(1e-12)


class Packed(NamedTuple):
    """What a quantised model keeps on disk: how its arrays are packed, and these."""

    facts: dict[str, Any]
    arrays: Arrays


def quantize(arrays: Arrays, size: int, rest: int) -> Packed:
    """Pack arrays so that all takes ``size`` bytes at most, of which ``rest`` are not for arrays."""
    packed: Arrays = {}
    for name, array in arrays.items():
        packed |= _coded(name, array) if array.ndim == 2 and len(array) else {name: array}
    words = len(arrays.get(WORDS, ()))
    by_word = [WORDS, EMBEDDING + CODES, EMBEDDING + SCALES] if words else []
    fixed = rest + sum(array.nbytes for name, array in packed.items() if name not in by_word)
    each = sum(packed[name].nbytes // words for name in by_word)
    least = fixed + (each if words else 0)
    if size < least:
        raise UsageError(f"--size is too small: at least {least:,} bytes are needed")
    if words:
        kept = min((size - fixed) // each, words)
        packed |= {name: packed[name][:kept] for name in by_word}
    return Packed({"bits": 8}, packed)


def unpack(facts: dict[str, Any], arrays: Arrays) -> tuple[Arrays, Packed | None]:
    """The plain arrays of a model, and what it keeps in their place if it was quantised."""
    if PACKED not in facts:
        return arrays, None
    plain = {name: array for name, array in arrays.items() if not name.endswith((CODES, SCALES))}
    for name in arrays:
        if name.endswith(CODES):
            plain[name.removesuffix(CODES)] = _decoded(arrays, name.removesuffix(CODES))
    return plain, Packed(facts[PACKED], arrays)


def _coded(name: str, array: Floats) -> Arrays:
    scales = np.maximum(np.abs(array).max(axis=1), LEAST_SCALE) / MOST_CODE
    codes = np.rint(array / scales[:, None]).astype(np.int8)
    return {name + CODES: codes, name + SCALES: scales.astype(np.float32)}


def _decoded(arrays: Arrays, name: str) -> Floats:
    codes, scales = arrays[name + CODES], arrays[name + SCALES]
    fits = codes.ndim == 2 and scales.shape == (len(codes),)
    if not fits or codes.dtype != np.int8 or scales.dtype != np.float32:
        raise InputError("the packed arrays of the network are damaged")
    with np.errstate(over="ignore", invalid="ignore"):  # of a damaged file
        return np.asarray(codes * scales[:, None], np.float32)
