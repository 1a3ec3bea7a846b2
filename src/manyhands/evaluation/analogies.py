"""Questions of words: a is to b as c is to what? Exact answers, by two rules.

3CosAdd takes the word nearest to b - a + c. 3CosMul takes the one with the largest product of its
similarities to b and to c, divided by that to a, so that no large term drowns the others; similarities are
cosines moved to between 0 and 1. No word of the question can be the answer.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from manyhands.errors import InputError, UsageError
from manyhands.evaluation.wordsets import AnalogySet
from manyhands.kernels.compile import Ints, kernel, read_only
from manyhands.kernels.simd import Floats
from manyhands.models.words.nearest import LEAST
from manyhands.parallel import map_unordered, one_thread_each
from manyhands.text.embedding import Embedding

RESTRICT = 30_000
QUESTIONS_AT_ONCE = 512
MOST_CELLS = 3 * QUESTIONS_AT_ONCE * RESTRICT  # scores held at once by a thread: 184 MB
LEAST_DIVISOR = np.float32(LEAST)  # else a cosine of -1 would divide by 0
SYNTACTIC = "gram"  # how Google's sections of grammar begin
ONE, HALF = np.float32(1), np.float32(0.5)


@dataclass(frozen=True)
class AnalogyScore:
    """Of ``questions``, those are ``covered`` whose four words were all among the candidates; accuracies
    are shares of the covered ones, and None if there are none."""

    questions: int = 0
    covered: int = 0
    correct_add: int = 0
    correct_mul: int = 0

    def facts(self) -> dict[str, Any]:
        correct = {"add": self.correct_add, "mul": self.correct_mul}
        accuracy = {rule: count / self.covered if self.covered else None for rule, count in correct.items()}
        counts = {"questions": self.questions, "covered": self.covered}
        return {**counts, "correct": correct, "accuracy": accuracy}


@dataclass(frozen=True)
class AnalogyReport:
    """Scores by section and in total; of sets with sections ``gram...``, as Google's has, also of these
    (``syntactic``) and of all others (``semantic``)."""

    restrict: int
    sections: dict[str, AnalogyScore]
    total: AnalogyScore
    semantic: AnalogyScore | None
    syntactic: AnalogyScore | None

    def facts(self) -> dict[str, Any]:
        return {
            "restrict": self.restrict,
            "total": self.total.facts(),
            "semantic": self.semantic and self.semantic.facts(),
            "syntactic": self.syntactic and self.syntactic.facts(),
            "sections": {name: score.facts() for name, score in self.sections.items()},
        }


def evaluate_analogies(
    embedding: Embedding, asked: AnalogySet, *, restrict: int = RESTRICT, threads: int = 1
) -> AnalogyReport:
    """Answer all questions with words among the first ``restrict`` of the embedding, its most frequent."""
    if restrict < 1:
        raise UsageError(f"analogies need 1 word or more to choose from, not {restrict}")
    unit = _unit(embedding.vectors[:restrict])
    questions = [question for section in asked.sections.values() for question in section]
    places = embedding.places([word for question in questions for word in question]).reshape(-1, 4)
    covered = np.all((places >= 0) & (places < len(unit)), axis=1)
    answers = answer(unit, places[covered, :3], threads)
    right = np.zeros((len(questions), 2), np.bool_)
    right[covered] = answers == places[covered, 3:]
    sections, start = {}, 0
    for name, section in asked.sections.items():
        rows = slice(start, start + len(section))
        sections[name] = AnalogyScore(
            len(section), int(covered[rows].sum()), *right[rows].sum(axis=0).tolist()
        )
        start = rows.stop
    syntactic = [score for name, score in sections.items() if name.startswith(SYNTACTIC)]
    semantic = [score for name, score in sections.items() if not name.startswith(SYNTACTIC)]
    return AnalogyReport(
        restrict=len(unit),
        sections=sections,
        total=_sum([*semantic, *syntactic]),
        semantic=_sum(semantic) if syntactic else None,
        syntactic=_sum(syntactic) if syntactic else None,
    )


def answer(unit: Floats, questions: Ints, threads: int = 1) -> Ints:
    """For each question (a, b, c) of rows of ``unit``, vectors of length 1: the answers of both rules.

    An answer is -1 where no row is left but those of the question.
    """
    out = np.full((len(questions), 2), -1, np.int64)
    step = max(1, min(QUESTIONS_AT_ONCE, MOST_CELLS // (3 * max(1, len(unit)))))

    def work(start: int) -> None:
        rows = slice(start, start + step)
        # Neighbours ask about the same words over and over: each word is multiplied once.
        words, where = np.unique(questions[rows], return_inverse=True)
        _pick(unit[words] @ unit.T, where.reshape(-1, 3), read_only(questions[rows]), out[rows])

    with one_thread_each:
        for _ in map_unordered(work, range(0, len(questions), step), threads):
            pass
    return out


@kernel
def _pick(cosines: Floats, where: Ints, questions: Ints, out: Ints) -> None:
    for row in range(len(questions)):
        a, b, c = cosines[where[row, 0]], cosines[where[row, 1]], cosines[where[row, 2]]
        best_sum, best_product = np.float32(-np.inf), np.float32(-np.inf)
        for word in range(cosines.shape[1]):
            total = b[word] - a[word] + c[word]
            product = (
                (ONE + b[word]) * (ONE + c[word]) * HALF / (ONE + a[word] + LEAST_DIVISOR + LEAST_DIVISOR)
            )
            if total > best_sum or product > best_product:
                # Only a new best is worth asking about.
                if word == questions[row, 0] or word == questions[row, 1] or word == questions[row, 2]:
                    continue
                if total > best_sum:
                    best_sum = total
                    out[row, 0] = word
                if product > best_product:
                    best_product = product
                    out[row, 1] = word


def _unit(vectors: Floats) -> Floats:
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))[:, None]
    if not np.isfinite(lengths).all():
        raise InputError("some word vectors are not finite numbers; the model has probably diverged")
    lengths[lengths == 0] = 1  # a vector that is 0 stays so
    return np.asarray(vectors / lengths, np.float32)


def _sum(scores: Sequence[AnalogyScore]) -> AnalogyScore:
    return AnalogyScore(*np.sum([(0, 0, 0, 0), *map(astuple, scores)], axis=0).tolist())
