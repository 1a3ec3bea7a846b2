"""Which n-grams speak most for each label of a bundle, whatever the text."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from manyhands.bundle.bundle import Bundle, load_classifier
from manyhands.bundle.feature_weights import WeightedNgram, named_weights
from manyhands.data.dataset import is_dataset
from manyhands.errors import UsageError
from manyhands.evaluation.evaluate import rows_to_judge_by
from manyhands.machine import resources_for
from manyhands.models.model import FEATURES, Featured
from manyhands.records import Progress, Silent
from manyhands.storage.files import StrPath
from manyhands.text.corpus import Corpus, corpus_of
from manyhands.text.ragged import from_arrow


@dataclass(frozen=True)
class TopFeatures:
    """Of each label the n-grams that speak most for it. Of all ``features``, so many are ``named``."""

    labels: dict[str, list[WeightedNgram]]
    features: int
    named: int


def top_features(
    bundle: StrPath | Bundle,
    data: StrPath | Sequence[StrPath] | None = None,
    *,
    label: str | None = None,
    top: int = 20,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    **reading: Any,
) -> TopFeatures:
    """The n-grams with the largest weights for each label, or for one.

    Features are hashes, without names. Names are the n-grams of ``data``, the training rows of a prepared
    dataset or raw files, or without it the words that the bundle keeps: then no longer n-gram has a name,
    and those without one are left out.
    """
    opened = bundle if isinstance(bundle, Bundle) else load_classifier(bundle)
    model: Featured = opened.need(FEATURES, "have no features with weights of their own")
    if top < 1:
        raise UsageError(f"--top is {top}; it must be 1 or more")
    if label is not None and label not in opened.labels:
        raise UsageError(f"the model has no label '{label}'; it has: {', '.join(opened.labels[:20])}")
    if data is None:
        corpus = corpus_of(from_arrow(opened.vocabulary.words))
    else:
        paths = [os.fspath(path) for path in ([data] if isinstance(data, str | os.PathLike) else data)]
        corpus = _corpus(opened, paths, reading, memory, threads, progress or Silent())
    names = model.names(corpus)
    chosen = opened.labels if label is None else [label]
    found = {name: named_weights(model, names, opened.labels.index(name), top) for name in chosen}
    return TopFeatures(found, len(names), len(names.known()))


def _corpus(
    bundle: Bundle,
    paths: list[str],
    reading: dict[str, Any],
    memory: int | str | None,
    threads: int | None,
    progress: Progress,
) -> Corpus:
    split = "train" if is_dataset(paths) else None
    return rows_to_judge_by(bundle, paths, split, reading, resources_for(memory, threads), progress).corpus
