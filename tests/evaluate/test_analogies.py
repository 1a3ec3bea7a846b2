"""Answers to analogies beside brute force, and how they are counted."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.errors import InputError, UsageError
from manyhands.evaluation import analogies
from manyhands.evaluation.analogies import AnalogyScore, answer, evaluate_analogies
from manyhands.evaluation.wordsets import AnalogySet, read_analogies
from manyhands.models.words.nearest import LEAST
from tests.evaluate.embeddings import embedding, random_embedding

# Two axes, sex and rank; "noise" is nearest to nothing, "King" is written otherwise in the questions.
ROYAL = embedding(
    ["man", "woman", "king", "queen", "noise"],
    [[1, 0.1, 0], [-1, 0.1, 0], [1, 1, 0], [-1, 1, 0], [0.1, 0.1, 3]],
)


def unit(rows: int, dim: int, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def brute(vectors: np.ndarray, question) -> tuple[int, int]:
    """Both rules as the papers have them, one candidate at a time."""
    wide = vectors.astype(np.float64)
    a, b, c = (wide[k] for k in question)
    best = [(-np.inf, -1), (-np.inf, -1)]
    for word, x in enumerate(wide):
        if word in question:
            continue
        near = [(1 + x @ y) / 2 for y in (a, b, c)]
        for rule, score in enumerate((x @ (b - a + c), near[1] * near[2] / (near[0] + LEAST))):
            best[rule] = max(best[rule], (score, word), key=lambda pair: pair[0])
    return best[0][1], best[1][1]


@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 4))
def test_beside_brute_force(seed: int, words: int, threads: int) -> None:
    vectors = unit(words, 6, seed)
    questions = np.random.default_rng(seed).integers(0, words, (12, 3))
    found = answer(vectors, questions, threads)
    assert found.tolist() == [list(brute(vectors, question.tolist())) for question in questions]


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, questions = unit(50, 8), np.random.default_rng(1).integers(0, 50, (100, 3))
    whole = answer(vectors, questions)
    for cells, most in ((3 * 50 * 7, 512), (1, 512), (1 << 20, 33)):
        monkeypatch.setattr(analogies, "MOST_CELLS", cells)
        monkeypatch.setattr(analogies, "QUESTIONS_AT_ONCE", most)
        assert (answer(vectors, questions, 2) == whole).all()


def test_the_rules_differ_where_they_should() -> None:
    vectors = unit(40, 3, 5)
    found = answer(vectors, np.random.default_rng(5).integers(0, 40, (200, 3)))
    assert 0 < (found[:, 0] != found[:, 1]).sum() < 200


def test_by_hand() -> None:
    asked = AnalogySet(
        "set",
        {
            "royal": [("man", "King", "woman", "Queen"), ("man", "king", "woman", "prince")],
            "gram1": [("king", "queen", "man", "woman"), ("king", "man", "queen", "noise")],
        },
    )
    report = evaluate_analogies(ROYAL, asked)
    assert report.sections == {"royal": AnalogyScore(2, 1, 1, 1), "gram1": AnalogyScore(2, 2, 1, 1)}
    assert report.semantic == AnalogyScore(2, 1, 1, 1) and report.syntactic == AnalogyScore(2, 2, 1, 1)
    assert report.total == AnalogyScore(4, 3, 2, 2) and report.restrict == 5
    facts = report.facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["syntactic"] == {
        "questions": 2,
        "covered": 2,
        "correct": {"add": 1, "mul": 1},
        "accuracy": {"add": 0.5, "mul": 0.5},
    }


def test_only_frequent_words_answer() -> None:
    asked = AnalogySet("set", {"s": [("man", "king", "woman", "queen")]})
    few = evaluate_analogies(ROYAL, asked, restrict=3)
    assert few.restrict == 3 and few.total == AnalogyScore(1, 0, 0, 0), "the answer is no candidate"
    assert few.total.facts()["accuracy"] == {"add": None, "mul": None}
    assert few.semantic is None and few.facts()["syntactic"] is None
    assert evaluate_analogies(ROYAL, asked, restrict=4).total == AnalogyScore(1, 1, 1, 1)
    with pytest.raises(UsageError, match="1 word or more"):
        evaluate_analogies(ROYAL, asked, restrict=0)


def test_a_question_word_is_no_answer() -> None:
    asked = AnalogySet("set", {"s": [("man", "woman", "king", "king")]})
    assert evaluate_analogies(ROYAL, asked).total == AnalogyScore(1, 1, 0, 0)
    assert answer(unit(3, 2), np.array([[0, 1, 2]])).tolist() == [[-1, -1]], "no other word is left"


def test_vectors_of_zero_and_of_any_length() -> None:
    asked = AnalogySet("set", {"s": [("man", "king", "woman", "queen")]})
    words = ["zero", *ROYAL.vocabulary.words.to_pylist()]
    vectors = np.vstack([np.zeros(3), ROYAL.vectors * np.array([[1e-25], [1e20], [2], [0.5], [1]])])
    assert evaluate_analogies(embedding(words, vectors), asked).total == AnalogyScore(1, 1, 1, 1)
    with pytest.raises(InputError, match="not finite"):
        evaluate_analogies(embedding(words, vectors + np.inf), asked)


def test_real_questions(real_data: Path) -> None:
    asked = read_analogies(real_data / "analogy" / "questions-words.txt")
    words = sorted({word.lower() for section in asked.sections.values() for q in section for word in q})
    plain = random_embedding(len(words), 20)
    report = evaluate_analogies(embedding(words, plain.vectors), asked, threads=2)
    assert report.total.questions == report.total.covered == 19_544
    assert report.semantic and report.syntactic
    assert (report.semantic.questions, report.syntactic.questions) == (8_869, 10_675)
    assert report.total.correct_add < 200, "chance knows nothing"
