"""Out-of-fold probabilities: every row is judged by a model that has not seen it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from manyhands.auditing.ranking import Mask, Probabilities
from manyhands.errors import InputError
from manyhands.kernels.compile import Hashes, Ints, kernel
from manyhands.parallel import map_ordered
from manyhands.records import Progress, Resources, Silent
from manyhands.spread.single import Single
from manyhands.text.hashing import mix
from manyhands.text.labelled_rows import LabelledRows, Tokens
from manyhands.training.job import Job

ROWS_AT_ONCE = 1 << 14
LEAST = np.finfo(np.float32).tiny


def folds_by_text(examples: LabelledRows, folds: int, seed: int) -> Ints:
    """The fold of each row, drawn by its text: rows with equal texts do not vouch for each other."""
    out = np.empty(len(examples), np.uint64)
    for first in range(0, len(examples), ROWS_AT_ONCE):
        rows = np.arange(first, min(first + ROWS_AT_ONCE, len(examples)))
        tokens, offsets = examples.corpus.take(rows)
        _hash(np.uint64(seed), tokens, offsets, examples.corpus.hashes, out[first:])
    return (out % np.uint64(folds)).astype(np.int64)


@kernel
def _hash(seed: np.uint64, tokens: Tokens, offsets: Ints, hashes: Hashes, out: Hashes) -> None:
    for row in range(len(offsets) - 1):
        value = mix(seed + np.uint64(1))
        for i in range(offsets[row], offsets[row + 1]):
            value = mix(value ^ hashes[tokens[i]])
        out[row] = value


@dataclass(frozen=True)
class Fold:
    """Rows that are judged by a model that was trained on others."""

    rows: Ints
    model: Any
    probabilities: Probabilities  # of each label, for each of the rows; they add up to 1
    known: Mask  # the labels that the model has met


def out_of_fold(
    job: Job,
    examples: LabelledRows,
    fold_of: Ints,
    trusted: Mask,
    resources: Resources,
    progress: Progress,
) -> Iterator[Fold]:
    """Judge each fold by a model that was trained on the ``trusted`` rows of all others.

    Folds are worked on side by side, each by one thread: what comes out is the same on any number of threads.
    """
    folds = np.unique(fold_of).tolist()
    if len(folds) < 2:
        raise InputError("there are too few different texts to judge some of them by others")
    side_by_side = min(resources.threads, len(folds))
    alone = replace(job, resources=Resources(1, resources.memory_bytes // side_by_side))

    def judge(number: int) -> Fold:
        rows, others = np.flatnonzero(fold_of == number), np.flatnonzero((fold_of != number) & trusted)
        learnt = examples.take(others)
        model: Any = Single().run(alone, learnt, None, Silent()).model
        scores = model.scores(examples.corpus.some(rows))
        sums = np.maximum(scores.sum(axis=1, keepdims=True), LEAST)  # one-vs-all does not add up by itself
        known = np.bincount(learnt.labels.ids, minlength=len(learnt.labels.names)) > 0
        return Fold(rows, model, scores / sums, known)

    progress.stage("judging", len(folds), "folds")
    for done, fold in enumerate(map_ordered(judge, folds, side_by_side), 1):
        yield fold
        progress.advance(done)
