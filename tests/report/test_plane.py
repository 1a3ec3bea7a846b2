"""Words on a plane: near words stand together, the lists of neighbours are exact, pages come out the same."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest

from manyhands.errors import InputError, UsageError
from manyhands.report.page import page
from manyhands.report.plane import NEIGHBOURS, Plane, plane
from manyhands.text.embedding import Embedding
from manyhands.text.vocabulary import Vocabulary

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!-- a",
    "<img src=x onerror=alert(1)>",
    "@@script@@",
    'a"b\\\u2028',
]


def embedding(words: list[str], vectors: np.ndarray) -> Embedding:
    counts = np.arange(len(words), 0, -1)
    return Embedding(Vocabulary(pa.array(words, pa.large_string()), counts), vectors.astype(np.float32))


def clusters(groups: int = 4, each: int = 30, dim: int = 40) -> tuple[Embedding, np.ndarray]:
    random = np.random.default_rng(5)
    group = np.arange(groups * each) % groups
    vectors = random.normal(size=(groups, dim))[group] + 0.3 * random.normal(size=(groups * each, dim))
    vectors *= random.uniform(0.1, 10, (len(group), 1))  # the length of a vector must not matter
    return embedding([f"word{n}" for n in range(len(group))], vectors), group


def apart(points: np.ndarray) -> np.ndarray:
    return np.linalg.norm(points[:, None] - points[None], axis=2)


def test_words_of_one_cluster_stand_together() -> None:
    words, group = clusters()
    far = apart(plane(words).positions)
    same = group[:, None] == group[None]
    assert far[~same].mean() > 4 * far[same].mean()
    assert far[~same].min() > np.median(far[same])


def test_the_same_seed_gives_the_same_plane_on_any_threads() -> None:
    words, _ = clusters()
    first, second, other = plane(words, threads=1), plane(words, threads=2), plane(words, seed=1)
    assert np.array_equal(first.positions, second.positions)
    assert np.array_equal(first.neighbours, second.neighbours)
    assert not np.array_equal(first.positions, other.positions)


def test_neighbours_are_those_of_all_by_cosine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyhands.report.plane.ROWS_AT_ONCE", 64)  # several blocks, the last a short one
    vectors = np.random.default_rng(0).normal(size=(300, 12))
    found = plane(embedding([f"w{n}" for n in range(300)], vectors), words=200, threads=2)
    units = vectors[:200] / np.linalg.norm(vectors[:200], axis=1, keepdims=True)
    cosines = units @ units.T
    np.fill_diagonal(cosines, -2)
    best = np.argsort(-cosines, axis=1)[:, :NEIGHBOURS]
    assert np.array_equal(found.neighbours, best)
    np.testing.assert_allclose(found.cosines, np.take_along_axis(cosines, best, 1), atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 3, 9, 10, 11])
@pytest.mark.parametrize("dim", [1, 2, 30])
def test_few_words_find_a_place(count: int, dim: int) -> None:
    vectors = np.random.default_rng(count).normal(size=(count, dim))
    found = plane(embedding([f"w{n}" for n in range(count)], vectors))
    assert found.positions.shape == (count, 2)
    assert np.isfinite(found.positions).all()
    assert found.neighbours.shape == (count, min(NEIGHBOURS, count - 1))
    assert data_of(page(found, name="few", model="m", dim=dim))["words"] == found.words


def test_equal_vectors_stand_on_one_spot() -> None:
    found = plane(embedding([f"w{n}" for n in range(50)], np.ones((50, 20))))
    assert np.abs(found.positions).max() < 1e-5
    np.testing.assert_allclose(found.cosines, 1, atol=1e-6)


def test_two_equal_words_come_apart() -> None:
    vectors = np.random.default_rng(3).normal(size=(40, 10))
    vectors[1] = vectors[0]
    found = plane(embedding([f"w{n}" for n in range(40)], vectors))
    assert found.neighbours[0, 0] == 1
    assert 0 < apart(found.positions)[0, 1] < np.median(apart(found.positions))


def test_what_cannot_be_placed_is_left_out() -> None:
    vectors = np.random.default_rng(0).normal(size=(7, 5))
    vectors[1], vectors[2, 3], vectors[3, 0] = 0, np.nan, np.inf
    found = plane(embedding(["the", "zero", "nan", "inf", "--", "été", "7"], vectors))
    assert found.words == ["the", "été", "7"]


def test_mistakes_are_told_in_a_sentence() -> None:
    with pytest.raises(InputError, match="no word has both"):
        plane(embedding([".", "a"], np.array([[1.0, 2.0], [0.0, 0.0]])))
    words, _ = clusters()
    with pytest.raises(UsageError, match=r"--words must be from 1 to 20,000, not 0"):
        plane(words, words=0)
    with pytest.raises(UsageError, match="seed"):
        plane(words, seed=-1)


def data_of(text: str) -> dict[str, list[str]]:
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert len(found) == 1
    return json.loads(found[0])


def test_hostile_words_stay_data() -> None:
    count = len(HOSTILE)
    drawn = Plane(
        HOSTILE, np.zeros((count, 2), np.float32), np.zeros((count, 0), np.int32), np.zeros((count, 0))
    )
    text = page(drawn, name="<b>@@data@@", model="</script>", dim=3)
    plain = page(plane(clusters()[0]), name="plain", model="m", dim=3)
    assert data_of(text)["words"] == HOSTILE
    assert "<title>&lt;b&gt;@@data@@ " in text
    for tag in ("<script", "</script", "<img", "<b>", "<!--"):
        assert text.count(tag) == plain.count(tag), tag
    assert "default-src 'none'" in text
    assert "unsafe" not in text
