"""Calibration where no validation rows are given: by rows held out from a second, equal training.

The model that is kept has learnt from all rows, so its own scores of them say nothing. One that has learnt
from nine tenths of them is nearly the same, and has not seen the last.
"""

from dataclasses import replace
from typing import cast

import numpy as np

from manyhands.evaluation.calibration import Calibrated, calibration_for
from manyhands.kernels.compile import Ints
from manyhands.models.model import Scorer
from manyhands.records import Progress, Silent
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.exchange import Alone
from manyhands.training.job import Job, Outcome
from manyhands.training.learn import learn
from manyhands.training.objective import objective_of

FEW_ROWS, FOLDS = 20_000, 5  # of fewer rows, all are held out in turn: a curve needs thousands
SHARE, MOST_ROWS = 0.1, 10_000  # held out of more


def with_calibration(
    job: Job,
    outcome: Outcome,
    train: LabelledRows,
    valid: LabelledRows | None,
    progress: Progress,
    labelled: int | None = None,
) -> Outcome:
    """The finished model with what sets its probabilities right, by rows that it has not learnt from.

    Of the rows to train on, so many first ones have labels that people gave them: all, if nothing is said.
    """
    objective = objective_of(job.model)
    if valid is not None:
        calibrated = objective.calibrated(job, outcome.model, valid)
    else:
        rows = len(train) if labelled is None else labelled
        calibrated = calibrated_by_hold_out(job, train, rows, progress) if objective.labelled else None
    return replace(outcome, calibrated=calibrated)


def calibrated_by_hold_out(
    job: Job, examples: LabelledRows, labelled: int, progress: Progress
) -> Calibrated | None:
    """How to set right a model that has learnt all of ``examples``; None where that would cost too much.

    It takes about as long as training did, so it is for models that learn fast enough to try out settings by
    themselves, in one process, and not if money is short or effort unwanted.
    """
    unwanted = job.training.calibrate == "none" or not job.training.effort or job.training.budget is not None
    if unwanted or not job.settings.choices or job.spread != "single" or job.previous is not None:
        return None
    progress.stage("calibrating", None, "rows")
    plain = job.training.model_copy(update={"price": None, "checkpoint_seconds": 0.0})
    alone = replace(job, training=plain, checkpoint=None, resume=False)
    scores = np.zeros((len(examples), len(examples.labels.names)), np.float32)
    folds, several = _folds(labelled, job.settings.seed), False
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(examples)), fold, assume_unique=True)
        model = cast(Scorer, learn(alone, examples.take(rest), None, Alone(), Silent()).model)
        several = model.multi_label
        scores[fold] = model.scores(examples.corpus.some(fold), job.resources.threads)
    rows = np.sort(np.concatenate(folds))
    return calibration_for(
        scores[rows], examples.take(rows), multi_label=several, method=job.training.calibrate
    )


def _folds(rows: int, seed: int) -> list[Ints]:
    """The rows to hold out, in one part or in several that are all of them."""
    order = np.random.default_rng([seed, rows]).permutation(rows)
    if rows < FEW_ROWS:
        return [np.sort(part) for part in np.array_split(order, FOLDS)]
    return [np.sort(order[: min(int(rows * SHARE), MOST_ROWS)])]
