"""Products of rows against numpy, for all the sizes at which the kernels' groups and rests meet."""

import numpy as np
import pytest

from manyhands.kernels.compile import kernel
from manyhands.kernels.products import add_rows, dots
from manyhands.kernels.simd import aligned_zeros


@kernel
def call_dots(out, at, row, i, rows, j, count, width):
    dots(out, at, row, i, rows, j, count, width)


@kernel
def call_add_rows(target, i, scales, at, rows, j, count, width):
    add_rows(target, i, scales, at, rows, j, count, width)


def drawn(seed, rows, width):
    out = aligned_zeros(rows, width)
    out[:] = np.random.default_rng(seed).normal(size=(rows, width))
    return out


@pytest.mark.parametrize("width", [16, 32, 48, 64, 112, 208])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 11])
def test_they_equal_numpy(width, count):
    one, many = drawn(0, 5, width), drawn(1, 14, width)
    found = np.full(20, 7, np.float32)
    call_dots(found, 2, one, 3, many, 1, count, width)
    assert np.allclose(found[2 : 2 + count], many[1 : 1 + count] @ one[3], atol=1e-4)
    assert (np.delete(found, np.s_[2 : 2 + count]) == 7).all()
    scales = np.random.default_rng(2).normal(size=20).astype(np.float32)
    target = one.copy()
    call_add_rows(target, 3, scales, 4, many, 1, count, width)
    expected = one[3] + scales[4 : 4 + count] @ many[1 : 1 + count]
    assert np.allclose(target[3], expected, atol=1e-4)
    assert np.array_equal(np.delete(target, 3, 0), np.delete(one, 3, 0))
