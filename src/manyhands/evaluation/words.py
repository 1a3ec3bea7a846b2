"""Judging word vectors: by what people say of words, by analogies, and by the text they were learnt from."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from manyhands.bundle.bundle import Bundle, record_of
from manyhands.bundle.word_vectors import embedding_of, open_either, open_embedding
from manyhands.data.dataset import is_dataset, open_dataset
from manyhands.data.labelled_rows import read_rows, rows_of_split
from manyhands.errors import InputError, UsageError
from manyhands.evaluation.analogies import RESTRICT, AnalogyReport, evaluate_analogies
from manyhands.evaluation.pip import PipReport, evaluate_pip, pip_report
from manyhands.evaluation.similarity import SimilarityReport, evaluate_similarity
from manyhands.evaluation.sppmi import signal, sppmi
from manyhands.evaluation.wordsets import find_sets
from manyhands.machine import resources_for
from manyhands.records import Progress, Resources, Silent
from manyhands.settings import PrepareSettings, TextSettings
from manyhands.storage.files import StrPath
from manyhands.text.corpus import Corpus
from manyhands.text.embedding import Embedding

PIP_WORDS = 20_000
WINDOW, NEGATIVES = 5, 5  # of vectors that do not say how they were learnt


@dataclass(frozen=True)
class WordReport:
    """All that was found. ``pip`` is None where there was no text to compare with, and ``why`` says so."""

    words: int
    dim: int
    folder: Path
    missing: list[str]
    similarity: dict[str, SimilarityReport] = field(default_factory=dict)
    analogies: dict[str, AnalogyReport] = field(default_factory=dict)
    pip: PipReport | None = None
    why: str = ""

    def facts(self) -> dict[str, Any]:
        return {
            "words": self.words,
            "dim": self.dim,
            "similarity": {name: report.facts() for name, report in self.similarity.items()},
            "analogies": {name: report.facts() for name, report in self.analogies.items()},
            "missing": self.missing,
            "pip": self.pip.facts() if self.pip else None,
        }


def evaluate_words(
    of: StrPath | Bundle | Embedding,
    data: Sequence[StrPath] = (),
    *,
    sets: StrPath | None = None,
    against: StrPath | None = None,
    restrict: int = RESTRICT,
    words: int = PIP_WORDS,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    **reading: Any,
) -> WordReport:
    """Judge word vectors by every set in the folder ``sets``, and by their PIP loss.

    That compares them with the signal of the text in ``data``, or in the files that the bundle was
    trained on if they are still there; or with other vectors, if ``against`` names some.
    """
    if against is not None and data:
        raise UsageError("compare with a text or with other vectors, not with both; leave out --against")
    watcher, resources = progress or Silent(), resources_for(memory, threads)
    opened = of if isinstance(of, Bundle | Embedding) else open_either(of)
    bundle = opened if isinstance(opened, Bundle) else None
    embedding = embedding_of(opened) if isinstance(opened, Bundle) else opened
    found = find_sets(sets)
    watcher.stage("judging", len(found.similarity) + len(found.analogies), "sets")
    similarity, analogies = {}, {}
    for asked in found.similarity:
        similarity[asked.name] = evaluate_similarity(embedding, asked)
        watcher.advance(len(similarity))
    for questions in found.analogies:
        analogies[questions.name] = evaluate_analogies(
            embedding, questions, restrict=restrict, threads=resources.threads
        )
        watcher.advance(len(similarity) + len(analogies))
    pip, why = None, ""
    try:
        if against is not None:
            pip = evaluate_pip(embedding, open_embedding(against), threads=resources.threads)
        else:
            corpus = _text_of(bundle, data, reading, resources, watcher)
            pip = _pip(embedding, corpus, bundle, words, resources, watcher)
    except InputError as nothing:
        if against is not None or data:
            raise
        why = str(nothing)  # what nobody asked for by name cannot be had: the rest is shown
    facts = (len(embedding), embedding.dim, found.folder, found.missing)
    return WordReport(*facts, similarity, analogies, pip, why)


def _text_of(
    bundle: Bundle | None,
    data: Sequence[StrPath],
    reading: dict[str, Any],
    resources: Resources,
    progress: Progress,
) -> Corpus:
    names = [os.fspath(name) for name in data]
    if not names and bundle is not None:
        facts = record_of(bundle).get("data", {})
        names, reading = facts.get("from", []), facts.get("reading", {})
    if not names:
        raise InputError("there is no text to compare with; name that from which the vectors were learnt")
    if is_dataset(names):
        return rows_of_split(open_dataset(names[0]), "train", labelled=False).corpus
    text = bundle.config.text if bundle else TextSettings()
    settings = PrepareSettings.create(**{"text": text, **reading})
    return read_rows(names, settings, resources, progress, labelled=False).examples.corpus


def _pip(
    embedding: Embedding,
    corpus: Corpus,
    bundle: Bundle | None,
    words: int,
    resources: Resources,
    progress: Progress,
) -> PipReport:
    progress.stage("signal of the text", None, "words")
    settings = bundle.config.settings if bundle else {}
    first = embedding.vocabulary.words[:words]
    own = corpus.words.arrow().cast(pa.large_string())
    numbers = np.asarray(pc.fill_null(pc.index_in(own, value_set=first), -1), np.int64)
    window, shift = settings.get("window", WINDOW), settings.get("negatives", NEGATIVES)
    matrix = sppmi(corpus, numbers, len(first), window=window, shift=shift, threads=resources.threads)
    reference = signal(matrix, min(embedding.dim, len(first)))
    vectors = np.ascontiguousarray(embedding.vectors[: len(first)])
    if not np.abs(reference).sum():
        raise InputError(f"no two words of the text co-occur {shift} times as often as chance would predict")
    return pip_report(vectors, reference, threads=resources.threads)
