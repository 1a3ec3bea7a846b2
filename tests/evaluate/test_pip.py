"""The PIP loss beside the tables that it never makes, and its bars of time and memory."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.errors import InputError
from manyhands.evaluation import pip
from manyhands.evaluation.pip import common_words, evaluate_pip, pip_loss, pip_report
from tests.evaluate.embeddings import embedding


def dense(first: np.ndarray, second: np.ndarray) -> float:
    first, second = first.astype(np.float64), second.astype(np.float64)
    return float(np.linalg.norm(first @ first.T - second @ second.T))


def noise(rows: int, dim: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)


def rotation(dim: int, seed: int = 0) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, dim)))[0]


SHAPES = {
    "rows": st.integers(1, 40),
    "dim": st.integers(1, 8),
    "other": st.integers(1, 8),
    "seed": st.integers(0, 999),
}


@given(**SHAPES)
def test_beside_the_tables(rows: int, dim: int, other: int, seed: int) -> None:
    first, second = noise(rows, dim, seed), noise(rows, other, seed + 1) * 3
    assert pip_loss(first, second) == pytest.approx(dense(first, second), rel=1e-9)
    squares = [
        np.linalg.norm(a.T.astype(np.float64) @ b)
        for a, b in ((first, first), (first, second), (second, second))
    ]
    plain = squares[0] ** 2 - 2 * squares[1] ** 2 + squares[2] ** 2
    assert pip_loss(first, second) ** 2 == pytest.approx(plain, rel=1e-9)


@given(**SHAPES, size=st.sampled_from([1e-2, 1e-4, 1e-6, 1e-9]))
def test_small_differences_are_exact(rows: int, dim: int, other: int, seed: int, size: float) -> None:
    """Where the plain formula would have lost its digits, with a turn between the two as well."""
    first = noise(rows, dim, seed).astype(np.float64)
    second = first + size * noise(rows, dim, seed + 1)
    wanted = dense(first, second)
    assert pip_loss(first, second @ rotation(dim, seed)) == pytest.approx(wanted, rel=1e-4, abs=1e-12)


@given(**SHAPES)
def test_symmetric_and_blind_to_turns(rows: int, dim: int, other: int, seed: int) -> None:
    first, second = noise(rows, dim, seed).astype(np.float64), noise(rows, other, seed + 1)
    loss = pip_loss(first, second)
    assert pip_loss(second, first) == pytest.approx(loss, rel=1e-12)
    assert pip_loss(first, first) == 0
    assert pip_loss(first @ rotation(dim, seed), first) == 0
    assert pip_loss(first @ rotation(dim, seed), second) == pytest.approx(loss, rel=1e-9)
    assert pip_loss(np.hstack([first, np.zeros((rows, 2))]), second) == pytest.approx(loss, rel=1e-12)


@given(**SHAPES, cells=st.integers(1, 200), threads=st.integers(1, 3))
def test_blocks_do_not_matter(rows: int, dim: int, other: int, seed: int, cells: int, threads: int) -> None:
    first, second = noise(rows, dim, seed), noise(rows, other, seed + 1)
    near = first + np.float32(1e-4) * noise(rows, dim, seed + 2)
    whole = pip_loss(first, second), pip_loss(first, near)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pip, "CELLS_AT_ONCE", cells)
        again = pip_loss(first, second, threads=threads), pip_loss(first, near, threads=threads)
    assert again == pytest.approx(whole, rel=1e-9)


def test_report_by_hand() -> None:
    # Tables diag(1, 1) and diag(4, 0): norms sqrt(2) and 4. Scaled, the first is diag(4, 4) / sqrt(2).
    first, second = np.eye(2, dtype=np.float32), np.array([[2], [0]], np.float32)
    report = pip_report(first, second)
    assert (report.words, report.dim, report.zero) == (2, 2, 1)
    assert report.loss == pytest.approx(np.sqrt(3**2 + 1))
    assert report.equal_norm == pytest.approx(np.hypot(4 - 4 / np.sqrt(2), 4 / np.sqrt(2)))
    assert report.relative == pytest.approx(report.equal_norm / 4)
    facts = report.facts()
    assert json.loads(json.dumps(facts)) == facts
    assert list(facts) == "words dim loss equal_norm relative random zero".split()


def test_norms_do_not_hide_what_was_learnt() -> None:
    """Zeros win by the raw loss; with equal norms the right directions do, and noise is where noise is."""
    truth = noise(300, 5, 0)
    learnt = 2 * (truth + 0.2 * noise(300, 5, 1)) @ rotation(5).astype(np.float32)
    report = pip_report(learnt, truth)
    assert report.loss > pip_loss(np.zeros_like(truth), truth)
    assert report.relative < 0.5 < report.zero < report.random
    chance = pip_report(noise(300, 5, 2), truth)
    assert chance.relative == pytest.approx(chance.random, rel=0.02)
    assert report.random == pip_report(learnt, truth).random != pip_report(learnt, truth, seed=1).random


def test_zeros() -> None:
    some, nothing = noise(4, 2, 0), np.zeros((4, 2), np.float32)
    assert pip_loss(some, nothing) == pip_loss(nothing, some) == pytest.approx(dense(some, nothing))
    assert pip_loss(nothing, nothing) == 0
    assert pip_report(nothing, some).relative == 1
    with pytest.raises(InputError, match="all 0"):
        pip_report(some, nothing)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (noise(3, 2, 0), noise(4, 2, 0), "vectors of 3 x 2 and 4 x 2 cannot be compared"),
        (noise(3, 2, 0)[:0], noise(3, 2, 0)[:0], "0 x 2"),
        (noise(3, 2, 0), noise(3, 2, 0) * np.nan, "not finite"),
    ],
)
def test_what_cannot_be_compared(first: np.ndarray, second: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        pip_loss(first, second)


def test_common_words() -> None:
    one = embedding(["a", "b", "c", "d"], noise(4, 2, 0))
    two = embedding(["c", "x", "a"], noise(3, 3, 1))
    ours, theirs = common_words(one, two)
    assert ours.tolist() == [0, 2] and theirs.tolist() == [2, 0]
    report = evaluate_pip(one, two)
    assert report.words == 2 and report.dim == 2
    assert report.loss == pytest.approx(dense(one.vectors[[0, 2]], two.vectors[[2, 0]]))
    with pytest.raises(InputError, match="no word in common"):
        common_words(one, embedding(["x"], noise(1, 2, 0)))


BAR = r"""
import re, time
import numpy as np
from manyhands.evaluation.pip import pip_loss
random = np.random.default_rng(0)
first = random.standard_normal((100_000, 200), dtype=np.float32)
turned = first @ np.linalg.qr(random.standard_normal((200, 200)))[0].astype(np.float32)
seconds = []
for second in (first, turned):
    start = time.process_time()
    loss = pip_loss(first, second)
    seconds.append(time.process_time() - start)
    print(loss, loss / np.linalg.norm(first.T @ first))
# Not ru_maxrss: that of a new process begins with what its parent used.
print(max(seconds), int(re.search(r"VmHWM:\s*(\d+)", open("/proc/self/status").read())[1]) / 1024)
"""


def test_large_embeddings() -> None:
    """In seconds of one core, so that others on the machine change nothing; memory with all inputs."""
    done = subprocess.run(
        [sys.executable, "-c", BAR],
        capture_output=True,
        check=True,
        timeout=500,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    same, turned, costs = (
        [float(word) for word in line.split()] for line in done.stdout.decode().splitlines()
    )
    assert same == [0, 0]
    assert turned[1] < 1e-6
    assert costs[0] < 2 and costs[1] < 1000
