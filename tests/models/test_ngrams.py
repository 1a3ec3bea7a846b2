"""What ``ngrams`` counts before it learns: how much each n-gram tells of each class."""

from dataclasses import replace

import numpy as np
import pytest

from manyhands.models.ngram.features import Features, Featuriser
from manyhands.models.ngram.feed import Block
from manyhands.models.ngram.ngrams import BLOCKS_AT_ONCE, COUNTED_ROWS, LEAST_SCALE, Ngrams, NgramsSettings
from manyhands.text.corpus import corpus_of
from manyhands.text.labelled_rows import LabelledRows, Labels
from manyhands.text.ragged import from_strings
from manyhands.training.exchange import Alone
from tests.tasks import begin, examples


def test_a_label_beside_another_is_not_outside_of_its_class() -> None:
    texts, ids, offsets = [], [], [0]
    for number in range(400):  # "good" stands in all rows of the first class, half of which have another too
        mine = ([0, 1], [0], [1], [2])[number % 4]
        texts.append("good day" if 0 in mine else "any day")
        ids += mine
        offsets.append(len(ids))
    labels = Labels(np.array(ids, np.int32), np.array(offsets), ["a", "b", "c"], multi_label=True)
    rows = LabelledRows(corpus_of(from_strings(texts)), labels, np.ones(len(texts), np.float32))
    learner, _ = begin(Ngrams, NgramsSettings(ngrams=1), rows)
    good = Featuriser(learner.model().space, corpus_of(from_strings(["good"])), distinct=True)
    scale = learner.state()["table"].array[good.of(np.arange(1)).ids[0], 0]
    # Of 200 rows of the class all have it, of 200 others none: 201/202 by 1/202.
    assert scale == pytest.approx(np.log(201) + LEAST_SCALE, abs=1e-5)


class Repeated:
    """A feed of equal blocks: every row has feature 0, and those of the second class have feature 1.

    ``weights`` are those of the rows of each block.
    """

    def __init__(self, weights: list[float], rows: int) -> None:
        self._weights = weights
        ids, lengths = np.tile(np.array([0, 1, 0], np.uint32), rows // 2), np.tile([2, 1], rows // 2)
        classes = np.tile(np.array([1, 0], np.int32), rows // 2)
        features = Features(ids, np.append(0, np.cumsum(lengths)))
        self.block = Block(features, classes, np.arange(rows + 1), np.ones(rows, np.float32))

    def __len__(self) -> int:
        return len(self._weights)

    def blocks(self, numbers: range, threads: int) -> list[Block]:
        return [replace(self.block, weights=self.block.weights * self._weights[k]) for k in numbers]


def test_counts_go_on_where_a_short_float_would_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of weight 1 count behind heavy ones that make 2^24 of each class."""
    assert COUNTED_ROWS < 1 << 24
    monkeypatch.setattr("manyhands.models.ngram.ngrams.COUNTED_ROWS", 1)
    rows = 1 << 12
    heavy = [2.0 * (1 << 24) / rows / BLOCKS_AT_ONCE] * BLOCKS_AT_ONCE
    feed = Repeated([*heavy, *[1.0] * BLOCKS_AT_ONCE], rows)
    learner, _ = begin(Ngrams, NgramsSettings(), examples(300))
    weights = np.concatenate([block.weights for block in feed.blocks(range(len(feed)), 1)])
    labels = Labels.single(np.tile(feed.block.labels, len(feed)), ["a", "b"])
    every = LabelledRows(corpus_of(from_strings(["a"])), labels, weights)
    learner.state()["table"].array[:] = 0
    learner._scale(feed, every, "naive-bayes", 1, Alone())
    half = (1 << 24) + BLOCKS_AT_ONCE * rows / 2
    assert learner.state()["table"].array[1, 0] == pytest.approx(np.log(half + 1) + LEAST_SCALE, abs=1e-5)
    assert learner.state()["table"].array[0, 0] == pytest.approx(LEAST_SCALE, abs=1e-5)
