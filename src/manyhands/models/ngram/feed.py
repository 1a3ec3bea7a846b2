"""Rows as features, in blocks: made once where they fit into memory, anew in each epoch where not."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Ints
from manyhands.models.learner import Crew, Piece
from manyhands.models.ngram.features import Features, FeatureSpace, Featuriser
from manyhands.parallel import map_ordered, map_unordered
from manyhands.records import Progress, Resources
from manyhands.text.labelled_rows import LabelledRows

LEAST_ROWS, MOST_ROWS = 256, 2048
BLOCKS = 64  # where there are rows enough: threads finish a round together, the rate falls smoothly
BYTES_PER_FEATURE = 4
# Crews exchange so often in an epoch at least, and after so many rows at first: measured by bench/crews.py.
EXCHANGES, LEAST_BETWEEN = 100, 16
LETTERS_A_WORD = 6  # with the marks of its begin and end


@dataclass(frozen=True)
class Block:
    """Some rows, ready to be learnt."""

    features: Features
    labels: npt.NDArray[np.int32]
    label_offsets: Ints
    weights: npt.NDArray[np.float32]

    def part(self, first: int, last: int) -> "Block":
        """The rows from ``first`` up to ``last``; nothing is copied but where each begins."""
        if last - first == len(self.weights):
            return self
        starts, label_starts = self.features.offsets, self.label_offsets
        features = self.features.ids[starts[first] : starts[last]]
        return Block(
            Features(features, starts[first : last + 1] - starts[first]),
            self.labels[label_starts[first] : label_starts[last]],
            label_starts[first : last + 1] - label_starts[first],
            self.weights[first:last],
        )


class FeatureFeed:
    """Blocks of rows in random order: that of the input, in which equal labels may stand together, is lost.

    Of rows that are shuffled already, blocks lie together in their file.
    """

    unit = "rows"

    def __init__(
        self,
        space: FeatureSpace,
        examples: LabelledRows,
        seed: int,
        resources: Resources,
        progress: Progress,
        crew: Crew,
        *,
        distinct: bool,
    ) -> None:
        self._examples, self._seed = examples, seed
        self._featuriser = Featuriser(space, examples.corpus, distinct=distinct)
        size = min(max(len(examples) // BLOCKS, LEAST_ROWS), MOST_ROWS)
        order = np.arange(len(examples))
        if not examples.shuffled:
            order = np.random.default_rng(seed).permutation(len(examples))
        self._rows = [order[start : start + size] for start in range(0, len(order), size)]
        self.between_exchanges = LEAST_BETWEEN, max(len(examples) // EXCHANGES, LEAST_BETWEEN)
        self._kept: dict[int, Block] | None = None
        mine = range(*crew.share(len(self)))
        # Half of the memory may hold features; the model and the texts take the rest.
        if self._most_bytes(space, examples) * len(mine) <= resources.memory_bytes // 2 * len(self):
            self._kept = {}
            self._make_ahead(mine, resources.threads, progress)

    def is_of(self, examples: LabelledRows, seed: int) -> bool:
        """Whether it holds these very rows in the same blocks."""
        return self._examples is examples and self._seed == seed

    @staticmethod
    def _most_bytes(space: FeatureSpace, examples: LabelledRows) -> int:
        least, most = space.hashing.chars
        a_token = space.hashing.ngrams + (LETTERS_A_WORD * (most - least + 1) if most else 0)
        return examples.corpus.tokens * a_token * BYTES_PER_FEATURE

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, block: int) -> int:
        return len(self._rows[block])

    def piece(self, piece: Piece, epoch: int) -> Block:
        if self._kept is None:
            return self._make(self._rows[piece.block][piece.first : piece.last])
        if piece.block not in self._kept:  # it was another worker's
            self._kept[piece.block] = self._make(self._rows[piece.block])
        return self._kept[piece.block].part(piece.first, piece.last)

    def blocks(self, numbers: range, threads: int) -> list[Block]:
        """Several blocks, in their order."""
        return list(map_ordered(lambda n: self.piece(self._whole(n), 0), numbers, threads))

    def _make(self, rows: Ints) -> Block:
        labels = self._examples.labels.take(rows)
        features = self._featuriser.of(rows)
        return Block(features, labels.ids, labels.offsets, self._examples.weights[rows])

    def _make_ahead(self, numbers: range, threads: int, progress: Progress) -> None:
        progress.stage("features", len(numbers), "blocks")
        for done, _ in enumerate(map_unordered(lambda n: self.piece(self._whole(n), 0), numbers, threads), 1):
            progress.advance(done)

    def _whole(self, block: int) -> Piece:
        return Piece(block, 0, len(self._rows[block]))
