"""The hashes are a promise: they decide rows' order and splits for ever."""

import mmh3
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from manyhands.text.hashing import digests, fractions
from manyhands.text.ragged import from_strings


@given(st.lists(st.binary(max_size=100), min_size=1, max_size=20))
def test_digest_is_murmur3(rows: list[bytes]) -> None:
    high, low = digests(from_strings(rows))
    for row, one, two in zip(rows, high.tolist(), low.tolist(), strict=True):
        assert (one, two) == mmh3.hash64(row, 0, True, signed=False)


def test_fractions_are_even_and_fixed() -> None:
    _, low = digests(from_strings([str(n) for n in range(100_000)]))
    drawn = fractions(low, seed=0)
    assert drawn.min() >= 0 and drawn.max() < 1
    assert np.abs(np.histogram(drawn, 10, (0, 1))[0] - 10_000).max() < 400
    assert not np.array_equal(drawn, fractions(low, seed=1))
    assert fractions(np.array([1, 2], np.uint64), 7).round(6).tolist() == [0.038361, 0.250615]
