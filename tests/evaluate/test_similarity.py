"""Rank correlations beside scipy's, and what counts where words are unknown."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from manyhands.errors import InputError
from manyhands.evaluation.similarity import SimilarityReport, evaluate_similarity
from manyhands.evaluation.wordsets import SimilaritySet
from tests.evaluate.embeddings import embedding, random_embedding

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # of numpy and scipy

PLANE = embedding(["a", "b", "c", "d", "zero"], [[1, 0], [1, 1], [0, 2], [-3, 0], [0, 0]])


def judge(pairs: list[tuple[str, str, float]], on=PLANE) -> SimilarityReport:
    first, second, scores = (list(column) for column in zip(*pairs, strict=True))
    return evaluate_similarity(on, SimilaritySet("set", first, second, np.array(scores)))


def test_by_hand() -> None:
    # Cosines 0.71, 0, -1 and of the unknown word 0; people agree with the first three.
    report = judge([("a", "b", 9), ("A", "C", 5), ("a", "d", 1), ("a", "x", 7)])
    assert report.spearman == pytest.approx(1) and report.coverage == 0.75 and report.pairs == 4
    # Ranks by cosine 4, 2.5, 1, 2.5 and by people 4, 2, 1, 3: Pearson of these is 4.5 / sqrt(4.5 * 5).
    assert report.spearman_all == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    assert report.unseen is None
    assert json.loads(json.dumps(report.facts())) == report.facts()
    assert list(report.facts()) == ["spearman", "coverage", "pairs", "spearman_all", "unseen"]


def test_lengths_do_not_matter() -> None:
    pairs = [("w0", "w1", 3.0), ("w1", "w2", 1.0), ("w2", "w3", 2.0), ("w0", "w3", 5.0)]
    plain = random_embedding(4, 3)
    long = embedding([f"w{n}" for n in range(4)], plain.vectors * np.array([[1e-20], [1e18], [3], [1e-3]]))
    assert judge(pairs, plain).facts() == judge(pairs, long).facts()


def test_no_correlation_is_none() -> None:
    assert judge([("a", "b", 1)]).spearman is None, "one pair"
    assert judge([("a", "b", 1), ("a", "c", 1)]).spearman is None, "people find all alike"
    assert judge([("a", "c", 1), ("c", "d", 2), ("zero", "a", 3)]).spearman is None, "the model does"
    nothing = judge([("x", "y", 1), ("x", "z", 2)])
    assert nothing.spearman is None and nothing.spearman_all is None and nothing.coverage == 0


def spell(words):
    """A vector for all words but "?": along the first axis if it has an "e", else along the second."""
    known = np.array([word != "?" for word in words])
    return np.array([[1, 0.1] if "e" in word else [0.1, 1] for word in words], np.float32) * known[
        :, None
    ], known


def test_spelled_words() -> None:
    spelling = embedding(["a", "b", "c"], [[1, 0], [1, 1], [0, 2]], spell)
    pairs = [("a", "b", 5), ("a", "eel", 9), ("eel", "owl", 1), ("c", "eel", 0), ("?", "a", 7)]
    report = judge(pairs, spelling)
    assert report.coverage == 0.8 and report.unseen is not None
    # Cosines 0.995, 0.198, 0.0995 of the pairs with unseen words, which people rank the same way.
    assert report.unseen == {"spearman": pytest.approx(1), "pairs": 3}
    assert report.spearman == pytest.approx(1)
    assert judge(pairs[:2], spelling).unseen is None, "one such pair"
    flat = judge([("a", "eel", 1), ("a", "bee", 2), ("b", "c", 3)], spelling)
    assert flat.unseen == {"spearman": None, "pairs": 2}


def test_diverged() -> None:
    with pytest.raises(InputError, match="not finite"):
        judge([("a", "b", 1), ("a", "c", 2)], embedding(["a", "b"], [[1, 0], [np.nan, 0]]))


@given(st.integers(0, 1000), st.integers(2, 40))
def test_beside_scipy(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    space = random_embedding(10, 5, seed)
    first, second = random.integers(0, 14, (2, count))  # of 14 words the last four are unknown
    scores = random.integers(0, 4, count).astype(float)
    report = judge([(f"w{a}", f"W{b}", s) for a, b, s in zip(first, second, scores, strict=True)], space)
    vectors = space.vectors.astype(np.float64)
    cosines = [
        vectors[a] @ vectors[b] / np.linalg.norm(vectors[a]) / np.linalg.norm(vectors[b])
        if max(a, b) < 10
        else None
        for a, b in zip(first, second, strict=True)
    ]
    known = [k for k, cosine in enumerate(cosines) if cosine is not None]
    assert report.coverage == pytest.approx(len(known) / count)
    for ours, rows in ((report.spearman, known), (report.spearman_all, list(range(count)))):
        x = np.round([cosines[k] or 0.0 for k in rows], 9)
        if len(rows) > 1 and np.ptp(scores[rows]) > 0 and np.ptp(x) > 0:
            assert ours == pytest.approx(spearmanr(x, scores[rows]).statistic, abs=1e-9)
