"""Predictions for raw files: one for every row of the input, in its order, as they come."""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from manyhands.bundle.bundle import Bundle
from manyhands.data.dataset import is_dataset
from manyhands.data.numbers import read_numbers
from manyhands.data.reader import read_texts
from manyhands.errors import UsageError
from manyhands.evaluation.evaluate import rows_to_judge_by
from manyhands.machine import cores, resources_for
from manyhands.models.model import Scores
from manyhands.parallel import map_ordered
from manyhands.records import Progress, Silent
from manyhands.settings import FileSettings, PrepareSettings
from manyhands.storage.files import StrPath


def predict(
    bundle: Bundle,
    sources: StrPath | Sequence[StrPath],
    *,
    split: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    **reading: Any,
) -> Iterator[Scores]:
    """The probability of each label for each row, many rows at a time; of a dataset, those of a split."""
    names = [os.fspath(n) for n in ([sources] if isinstance(sources, str | os.PathLike) else sources)]
    if is_dataset(names):
        resources = resources_for(None, threads)
        examples = rows_to_judge_by(bundle, names, split, reading, resources, progress or Silent())
        return iter([bundle.classifier.scores(examples.corpus, resources.threads)])
    if "label_field" in reading and not bundle.classifier.reads_numbers:
        raise UsageError("--label-field is for tables of numbers; of texts, predict reads no labels")
    if split is not None:
        raise UsageError("--split is for prepared datasets; of raw files, all rows are used")
    settings = PrepareSettings(**FileSettings.create(**reading).model_dump(), labels="none")
    if bundle.classifier.reads_numbers:
        examples = read_numbers(names, settings, labelled=False, every_row=True)
        return iter([bundle.classifier.scores(examples.corpus, threads or cores())])
    return map_ordered(bundle.scores, read_texts(names, settings, progress or Silent()), threads or cores())


def lines(bundle: Bundle, scores: Scores, top: int, at: float | None, as_json: bool) -> Iterator[str]:
    """What is printed for each row: its labels with their probabilities, the likeliest first.

    With ``at``, all labels that are at least so likely, of ``top`` at most; there may be none.
    """
    if top < 1:
        raise UsageError(f"--top must be 1 or more, not {top}")
    for row in bundle.likeliest(scores, top):
        shown = [(name, p) for name, p in row if at is None or p >= at]
        if as_json:
            yield json.dumps(
                {"labels": [name for name, _ in shown], "scores": [round(p, 6) for _, p in shown]},
                ensure_ascii=False,
            )
        else:
            yield "\t".join(f"{name}\t{p:.4f}" for name, p in shown)
