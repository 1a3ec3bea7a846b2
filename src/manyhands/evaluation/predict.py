"""Predictions for raw files: one for every row of the input, in its order, as they come."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from manyhands.bundle.bundle import Bundle
from manyhands.bundle.unsure import UNSURE, check_unsure
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


@dataclass(frozen=True)
class Shown:
    """Which labels of a row are shown: the ``top`` likeliest, of those that are at least ``at`` likely.

    None, where the likeliest is less likely than ``unsure``.
    """

    top: int = 1
    at: float | None = None
    unsure: float | None = None


def lines(bundle: Bundle, scores: Scores, shown: Shown, as_json: bool) -> Iterator[str]:
    """What is printed for each row: its labels with their probabilities, the likeliest first.

    A row that the model is unsure of has no labels in JSON; else the word, and how likely the best one is.
    """
    if shown.top < 1:
        raise UsageError(f"--top must be 1 or more, not {shown.top}")
    check_unsure(shown.unsure, bundle.labels)
    for row in bundle.likeliest(scores, shown.top):
        best = row[0][1]
        unsure = shown.unsure is not None and best < shown.unsure
        likely = [(name, p) for name, p in row if not unsure and (shown.at is None or p >= shown.at)]
        if as_json:
            found = {"labels": [name for name, _ in likely], "scores": [round(p, 6) for _, p in likely]}
            said = {} if shown.unsure is None else {"unsure": unsure, "best_score": round(best, 6)}
            yield json.dumps({**found, **said}, ensure_ascii=False)
        elif unsure:
            yield f"{UNSURE}\t{best:.4f}"
        else:
            yield "\t".join(f"{name}\t{p:.4f}" for name, p in likely)
