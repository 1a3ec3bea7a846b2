"""Predictions for raw files: one for every row of the input, in its order, as they come."""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.data.numbers import read_table
from manyhands.data.texts import texts_of_files
from manyhands.errors import InputError, UsageError
from manyhands.evaluate.judging import is_dataset, rows_to_judge_by
from manyhands.machine import cores, resources_for
from manyhands.models.bundle import Bundle
from manyhands.models.learner import Scores
from manyhands.parallel import in_order
from manyhands.records import Progress, Silent
from manyhands.settings import PrepareSettings

StrPath = str | os.PathLike[str]


def predict(
    bundle: Bundle,
    sources: StrPath | Sequence[StrPath],
    *,
    split: str = "test",
    threads: int | None = None,
    reading: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Iterator[Scores]:
    """The probability of each label for each row, many rows at a time; of a dataset, those of a split."""
    names = [os.fspath(n) for n in ([sources] if isinstance(sources, str | os.PathLike) else sources)]
    if is_dataset(names):
        resources = resources_for(None, threads)
        lesson = rows_to_judge_by(bundle, names, split, reading or {}, resources, progress or Silent())
        return iter([bundle.model.scores(lesson.corpus, resources.threads)])
    settings = PrepareSettings.checked(**{**(reading or {}), "labels": "none"})
    if bundle.model.reads_numbers:
        lesson = read_table(names, settings, labelled=False)
        if lesson.left_out:
            raise InputError(f"{lesson.left_out} rows lack a number; every row must have a prediction")
        return iter([bundle.model.scores(lesson.corpus, threads or cores())])
    return in_order(bundle.scores, texts_of_files(names, settings, progress or Silent()), threads or cores())


def lines(bundle: Bundle, scores: Scores, top: int, at: float | None, as_json: bool) -> Iterator[str]:
    """What is printed for each row: its labels with their probabilities, the likeliest first.

    With ``at``, all labels that are at least so likely, of ``top`` at most; there may be none.
    """
    if top < 1:
        raise UsageError(f"--top must be 1 or more, not {top}")
    chosen = _likeliest(scores, top)
    values = np.take_along_axis(scores, chosen, axis=1)
    names = bundle.labels
    for labels, likely in zip(chosen.tolist(), values.tolist(), strict=True):
        shown = [(names[k], p) for k, p in zip(labels, likely, strict=True) if at is None or p >= at]
        if as_json:
            yield json.dumps(
                {"labels": [name for name, _ in shown], "scores": [round(p, 6) for _, p in shown]},
                ensure_ascii=False,
            )
        else:
            yield "\t".join(f"{name}\t{p:.4f}" for name, p in shown)


def _likeliest(scores: Scores, top: int) -> npt.NDArray[np.int64]:
    if top == 1:
        return np.asarray(scores.argmax(axis=1, keepdims=True))
    return np.argsort(-scores, axis=1, kind="stable")[:, :top]
