"""A classifier in one file, by the recipe of CONTRIBUTING.md: naive Bayes over hashed words."""

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from manyhands.models.learner import Loss, StateArray
from manyhands.models.model import CLASSIFY
from manyhands.settings import Epochs, LearningRate, ModelSettings, Shapes
from manyhands.text.corpus import corpus_of

BUCKETS, ROWS = 1 << 12, 64


class ToySettings(ModelSettings):
    epochs: Epochs = 2
    learning_rate: LearningRate = 1.0
    smoothing: Annotated[
        float, Field(gt=0, le=100, description="Added to the count of every word."), Shapes()
    ] = 1.0


class ToyModel:
    can: ClassVar[frozenset[str]] = frozenset({CLASSIFY})
    multi_label = reads_numbers = False

    def __init__(self, labels, counts, smoothing):
        self.labels, self.counts, self.smoothing = labels, counts, smoothing

    def read(self, normal):
        return corpus_of(normal)

    def score_texts(self, normal):
        return self.scores(self.read(normal))

    def scores(self, corpus, threads=1):
        counts = self.counts + self.smoothing
        logs = np.log(counts / counts.sum(axis=0))
        out = np.array([logs[words].sum(axis=0) for words in rows_of(corpus, np.arange(len(corpus)))])
        chances = np.exp(out - out.max(axis=1, keepdims=True))
        return (chances / chances.sum(axis=1, keepdims=True)).astype(np.float32)

    def facts(self):
        return {"labels": self.labels, "smoothing": self.smoothing}

    def arrays(self):
        return {"counts": self.counts}

    @classmethod
    def from_parts(cls, facts, arrays):
        return cls(facts["labels"], arrays["counts"], facts["smoothing"])


def rows_of(corpus, rows):
    """The buckets of the words of each row."""
    tokens, offsets = corpus.take(rows)
    buckets = (corpus.hashes[tokens] % np.uint64(BUCKETS)).astype(np.int64)
    return np.split(buckets, offsets[1:-1])


class ToyFeed:
    unit = "rows"
    between_exchanges = 16, 64

    def __init__(self, examples):
        self._examples = examples

    def __len__(self):
        return (len(self._examples) + ROWS - 1) // ROWS

    def rows(self, block):
        return min(ROWS, len(self._examples) - block * ROWS)

    def piece(self, piece, epoch):
        rows = piece.block * ROWS + np.arange(piece.first, piece.last)
        return rows_of(self._examples.corpus, rows), self._examples.labels.take(rows).ids


class Toy:
    Settings: ClassVar[type[ToySettings]] = ToySettings
    Model: ClassVar[type[ToyModel]] = ToyModel
    summary: ClassVar[str] = "naive Bayes over hashed words"
    learns: ClassVar[str] = "labels"
    shares_batches: ClassVar[bool] = False

    def __init__(self, settings, labels, crew):
        self._settings, self._labels = settings, labels
        self._counts = crew.zeros(BUCKETS, len(labels))

    @classmethod
    def begin(cls, settings, examples, previous, resources, progress, crew):
        learner = cls(settings, examples.labels.names, crew)
        if previous:
            learner._counts[:, : len(previous.labels)] = previous.counts
        return learner

    def feed(self, examples, seed, resources, progress, crew):
        return ToyFeed(examples)

    def learn(self, rows, rate, seed, crew):
        for words, label in zip(*rows, strict=True):
            np.add.at(self._counts[:, label], words, np.float32(1))
        return Loss(float(len(rows[1])), float(len(rows[1])))

    def state(self):
        return {"counts": StateArray(self._counts)}

    def model(self):
        return ToyModel(self._labels, self._counts, self._settings.smoothing)
