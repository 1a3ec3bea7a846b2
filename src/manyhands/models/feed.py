"""Rows as features, in blocks: made once where they fit into memory, anew in each epoch where not."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manyhands.kernel import Ints, kernel
from manyhands.models.learner import Piece
from manyhands.models.space import Features, FeatureSpace, Featuriser
from manyhands.parallel import side_by_side
from manyhands.records import Progress, Resources
from manyhands.text.lesson import Lesson

LEAST_ROWS, MOST_ROWS = 256, 2048
BLOCKS = 64  # where there are rows enough: threads finish a round together, the rate falls smoothly
BYTES_PER_FEATURE = 4
LETTERS_A_WORD = 6  # with the marks of its begin and end


@dataclass(frozen=True)
class Block:
    """Some rows of a lesson, ready to be learnt."""

    features: Features
    labels: npt.NDArray[np.int32]
    label_offsets: Ints
    weights: npt.NDArray[np.float32]


class FeatureFeed:
    """Blocks of random rows: the order of the input, in which equal labels may stand together, is lost."""

    unit = "rows"

    def __init__(
        self,
        space: FeatureSpace,
        lesson: Lesson,
        seed: int,
        resources: Resources,
        progress: Progress,
        *,
        distinct: bool,
    ) -> None:
        self._lesson = lesson
        self._featuriser = Featuriser(space, lesson.corpus, distinct=distinct)
        size = min(max(len(lesson) // BLOCKS, LEAST_ROWS), MOST_ROWS)
        order = np.random.default_rng(seed).permutation(len(lesson))
        self._rows = [order[start : start + size] for start in range(0, len(order), size)]
        self._kept: list[Block] | None = None
        # Half of the memory may hold features; the model and the texts take the rest.
        if self._most_bytes(space, lesson) <= resources.memory_bytes // 2:
            self._kept = self._make_all(resources.threads, progress)

    @staticmethod
    def _most_bytes(space: FeatureSpace, lesson: Lesson) -> int:
        least, most = space.slotting.chars
        a_token = space.slotting.ngrams + (LETTERS_A_WORD * (most - least + 1) if most else 0)
        return lesson.corpus.tokens * a_token * BYTES_PER_FEATURE

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, block: int) -> int:
        return len(self._rows[block])

    def piece(self, piece: Piece, epoch: int) -> Block:
        """Whole blocks only: those who share them out give none in parts."""
        return self._make(piece.block) if self._kept is None else self._kept[piece.block]

    def blocks(self, numbers: range, threads: int) -> list[Block]:
        """Several blocks, in their order."""
        if self._kept is not None:
            return [self._kept[number] for number in numbers]
        made = dict(side_by_side(lambda number: (number, self._make(number)), numbers, threads))
        return [made[number] for number in numbers]

    def _make(self, number: int) -> Block:
        rows = self._rows[number]
        labels = self._lesson.labels.take(rows)
        features = self._featuriser.of(rows)
        return Block(features, labels.ids, labels.offsets, self._lesson.weights[rows])

    def _make_all(self, threads: int, progress: Progress) -> list[Block]:
        progress.stage("features", len(self._rows), "blocks")
        made: dict[int, Block] = {}
        for number, block in side_by_side(lambda n: (n, self._make(n)), range(len(self._rows)), threads):
            made[number] = block
            progress.advance(len(made))
        return [made[number] for number in range(len(made))]


def distinct_features(blocks: list[Block], features: int) -> Ints:
    """The features of some blocks, each once."""
    found = np.zeros(features, np.bool_)
    for block in blocks:
        _mark(block.features.ids, found)
    return np.flatnonzero(found)


@kernel
def _mark(ids: npt.NDArray[np.integer], found: npt.NDArray[np.bool_]) -> None:
    for feature in ids:
        found[feature] = True
