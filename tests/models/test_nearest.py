"""The nearest words beside what a plain search over all of them finds."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.errors import InputError, UnknownWordError, UsageError
from manyhands.models.words import nearest as module
from manyhands.models.words.nearest import analogy, complete, nearest, neighbours, spellings
from manyhands.text.embedding import UNKNOWN, Embedding
from manyhands.text.vocabulary import Vocabulary


def embedding_of(vectors: np.ndarray, words: list[str] | None = None) -> Embedding:
    words = words or [f"word{n}" for n in range(len(vectors))]
    return Embedding(
        Vocabulary(pa.array(words, pa.large_string()), np.zeros(len(words), np.int64)),
        vectors.astype(np.float32),
    )


def plainly(embedding: Embedding, queries: np.ndarray, top: int, exclude: list[list[int]]) -> list[list[int]]:
    """Cosines in double precision, then a sort."""
    table, asked = embedding.vectors.astype(np.float64), queries.astype(np.float64)
    norms = [np.maximum(np.linalg.norm(part, axis=1), 1e-300) for part in (table, asked)]
    cosines = asked @ table.T / norms[1][:, None] / norms[0]
    found = []
    for row, left_out in zip(cosines, exclude, strict=True):
        order = sorted(set(range(len(table))) - set(left_out), key=lambda n: (-row[n], n))
        found.append((order + [UNKNOWN] * len(table))[: min(top, len(table))])
    return found


@pytest.mark.parametrize("numbers", [1, 64, 1000, 1 << 20])
@pytest.mark.parametrize("top", [1, 7, 600])
def test_beside_a_plain_search(numbers: int, top: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NUMBERS_AT_ONCE", numbers)
    monkeypatch.setattr(module, "QUERIES_AT_ONCE", 3)
    draw = np.random.default_rng(top)
    embedding = embedding_of(draw.normal(size=(400, 8)) * draw.uniform(0.1, 30, (400, 1)))
    queries = draw.normal(size=(5, 8)).astype(np.float32)
    exclude = [[], [0], [399, 1, 1], list(range(50)), list(range(395))]
    rows, cosines = nearest(embedding, queries, top, exclude)
    assert rows.tolist() == plainly(embedding, queries, top, exclude)
    assert (cosines[:, 1:] <= cosines[:, :-1]).all()
    assert np.isfinite(cosines).tolist() == (rows != UNKNOWN).tolist()


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 50), st.randoms(use_true_random=False))
def test_ties_go_to_the_first_rows(rows: int, top: int, block: int, draw: object) -> None:
    directions = np.array([[1, 0], [0, 1], [-1, 0], [0, 0]])
    embedding = embedding_of(directions[[draw.randrange(4) for _ in range(rows)]])  # type: ignore[attr-defined]
    queries = np.array([[2, 0], [0, 0]], np.float32)
    before = module.NUMBERS_AT_ONCE
    module.NUMBERS_AT_ONCE = block
    try:
        found, cosines = nearest(embedding, queries, top)
    finally:
        module.NUMBERS_AT_ONCE = before
    assert found.tolist() == plainly(embedding, queries, top, [[], []])
    assert set(cosines.ravel().tolist()) <= {1.0, 0.0, -1.0}


def test_vectors_that_are_not_finite_are_near_to_nothing() -> None:
    vectors = np.ones((300, 2))
    vectors[::2] = np.nan
    rows, _ = nearest(embedding_of(vectors), np.ones((1, 2), np.float32), 3)
    assert rows.tolist() == [[1, 3, 5]]


def test_nothing_to_find() -> None:
    empty = embedding_of(np.empty((0, 3)), [])
    rows, cosines = nearest(empty, np.ones((2, 3), np.float32), 5)
    assert rows.shape == cosines.shape == (2, 0)
    assert nearest(embedding_of(np.ones((4, 3))), np.empty((0, 3), np.float32), 2)[0].shape == (0, 2)


COUNTRIES = ["man", "woman", "king", "queen", "kings", "apple"]
VECTORS = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 1, 1], [1, 0.1, 1], [0.1, 0.1, -1]]) * [
    [3],
    [1],
    [2],
    [5],
    [1],
    [1],
]


@pytest.mark.parametrize("method", ["add", "mul"])
def test_analogies(method: str) -> None:
    embedding = embedding_of(VECTORS, COUNTRIES)
    found = complete(embedding, "man", "woman", "king", 3, method, of="it")
    units = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    cosines = units @ units.T
    if method == "add":
        mean = units[1] + units[2] - units[0]
        expected = units @ mean / np.linalg.norm(mean)
    else:
        like = (1 + cosines) / 2
        expected = like[1] * like[2] / (like[0] + 1e-6)
    order = sorted([3, 4, 5], key=lambda row: -expected[row])
    assert [word for word, _ in found] == [COUNTRIES[row] for row in order] and found[0][0] == "queen"
    assert [score for _, score in found] == pytest.approx(expected[order], rel=1e-5)


def test_words_by_name() -> None:
    embedding = embedding_of(VECTORS, COUNTRIES)
    first, second = neighbours(embedding, ["king", "Queen"], 2, of="runs/wiki")
    assert [word for word, _ in first] == ["kings", "man"]
    assert "queen" not in dict(second) and len(second) == 2
    assert len(neighbours(embedding, ["king"], 100, of="it")[0]) == 5
    sentence = "'kingg' is not among the 6 words of runs/wiki; did you mean king, kings?"
    for kind in (InputError, KeyError, UnknownWordError):
        with pytest.raises(kind) as caught:
            neighbours(embedding, ["king", "kingg"], of="runs/wiki")
        assert str(caught.value) == sentence
    with pytest.raises(InputError, match=r"'zzzzz' is not among the 6 words of it$"):
        complete(embedding, "man", "woman", "zzzzz", of="it")
    assert spellings(embedding, "woma") == ["woman"]
    with pytest.raises(UsageError, match="--top must be 1 or more, not 0"):
        neighbours(embedding, ["king"], 0, of="it")
    with pytest.raises(UsageError, match="no method 'div'; there are: add, mul"):
        analogy(embedding, embedding.vectors[:1], embedding.vectors[1:2], method="div")


def test_words_that_are_spelled() -> None:
    plain = embedding_of(VECTORS, COUNTRIES)
    letters = Embedding(
        plain.vocabulary,
        plain.vectors,
        lambda words: (np.ones((len(words), 3), np.float32), np.array(["x" not in word for word in words])),
    )
    (found,) = neighbours(letters, ["unheard"], 10, of="it")
    assert len(found) == 6 and found[0][0] in ("queen", "kings")
    with pytest.raises(InputError, match="'xenon' is not among"):
        neighbours(letters, ["unheard", "xenon"], of="it")


def test_a_million_words_from_a_mapped_file(tmp_path):
    count, dim = 1_000_000, 16
    made = np.lib.format.open_memmap(tmp_path / "vectors.npy", "w+", np.float32, (count, dim))
    made[:] = np.random.default_rng(0).normal(size=(count, dim))
    made.flush()
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    words = pa.array(np.arange(count)).cast(pa.large_string())
    embedding = Embedding(Vocabulary(words, np.zeros(count, np.int64)), mapped)
    found = [int(word) for word, _ in neighbours(embedding, ["5"], 10, of="it")[0]]
    cosines = mapped @ mapped[5] / np.linalg.norm(mapped, axis=1)
    assert found == np.argsort(-cosines)[1:11].tolist()
