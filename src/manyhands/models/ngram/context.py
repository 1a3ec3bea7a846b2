"""Vectors of texts, learnt from labelled and unlabelled ones.

Half of the n-grams of a text tell which others it has. Only n-grams that tell something of the
labels are asked for, so the vectors hold what matters for these, also of n-grams that no labelled
row has: "a waste of film" stands beside "worst" in many texts that nobody has labelled. The vector
of a text is the sum of those of its n-grams, each scaled by what it tells, over the length of these
scales.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.kernels.simd import LINE, Floats, aligned_zeros
from manyhands.machine import refuse_if_too_large
from manyhands.models.learner import Crew
from manyhands.models.ngram import context_kernels as kernels
from manyhands.models.ngram.feature_kernels import Numbers
from manyhands.models.ngram.features import (
    Features,
    FeatureSpace,
    NgramSettings,
    find_features,
    hashing_for,
    score_rows,
)
from manyhands.models.ngram.feed import Block, FeatureFeed
from manyhands.models.ngram.ngrams import NgramsSettings, rows_of_classes
from manyhands.parallel import map_unordered
from manyhands.records import Progress, Resources
from manyhands.text.corpus import Corpus
from manyhands.text.labelled_rows import LabelledRows

MIN_COUNT = 10  # of an n-gram in all texts: what stands in fewer is learnt too badly
LEAST_SCALE = 0.05
SURE = 1.0  # standard errors from which an n-gram is held to tell something
TELLS = 0.7  # n-grams that tell so much are always asked for, others more seldom
DRAW_SIZE, DRAW_POWER = 1 << 22, 0.75
FIRST_INPUT_SQUARES, FIRST_OUTPUT_SQUARES = 0.01, 1.0
FIRST_LENGTH = 0.3
BLOCKS_AT_ONCE = 64


@dataclass(frozen=True)
class ContextSettings:
    """How long, and how large. Chosen on validation rows of IMDB's training set."""

    dim: int = 96
    epochs: int = 10
    rate: float = 0.3
    seed: int = 0


@dataclass(frozen=True)
class ContextVectors:
    """``inputs`` has the vector of each feature."""

    space: FeatureSpace
    scales: Floats
    inputs: Floats

    def of(self, corpus: Corpus, threads: int) -> Floats:
        """The vector of each row."""
        return score_rows(self.space, corpus, self.inputs.shape[1], self._fill, threads, distinct=True)

    def _fill(self, features: Features, out: Floats) -> None:
        kernels.vectors(features.ids, features.offsets, self.scales, self.inputs, out)


def learn_context(
    labelled: LabelledRows,
    texts: LabelledRows,
    settings: ContextSettings,
    resources: Resources,
    progress: Progress,
    crew: Crew,
    *,
    deterministic: bool,
) -> ContextVectors:
    """Learn from ``texts``, labelled or not; what tells something is found in ``labelled``."""
    ngram_settings: NgramSettings = NgramsSettings(min_count=MIN_COUNT)
    hashing = hashing_for(ngram_settings, texts.corpus, resources)
    progress.stage("counting", None, "rows")
    space = find_features(texts.corpus, hashing, MIN_COUNT, resources.threads, crew)
    width = -(-settings.dim // LINE) * LINE
    refuse_if_too_large(len(space) * 4 * (2 * width + 2 * len(labelled.labels.names) + 4), resources)
    scales, sureness = _scales(space, labelled, resources, progress, crew)
    feed = FeatureFeed(space, texts, settings.seed, resources, progress, crew, distinct=True)
    kept = np.where(sureness > SURE, np.sqrt(np.minimum(scales / TELLS, 1)), 0).astype(np.float32)
    inputs, outputs = aligned_zeros(len(space), width), aligned_zeros(len(space), width)
    random = np.random.default_rng(settings.seed)
    inputs[:] = random.standard_normal(inputs.shape, np.float32) * np.float32(FIRST_LENGTH / np.sqrt(width))
    squares = np.empty((len(space), 2), np.float32)
    squares[:] = FIRST_INPUT_SQUARES, FIRST_OUTPUT_SQUARES
    state = _State(
        scales + np.float32(LEAST_SCALE), kept, _draw(feed, kept, resources.threads), inputs, outputs, squares
    )
    if len(state.draw):
        _fit(feed, state, settings, 1 if deterministic else resources.threads, progress)
    return ContextVectors(space, state.scales, inputs)


@dataclass(frozen=True)
class _State:
    scales: Floats
    kept: Floats
    draw: Numbers
    inputs: Floats
    outputs: Floats
    squares: Floats


def _fit(
    feed: FeatureFeed, state: _State, settings: ContextSettings, threads: int, progress: Progress
) -> None:
    """All epochs, at a rate that falls to 0; blocks come in an order that the seed decides."""
    order = np.random.default_rng(settings.seed)
    blocks = settings.epochs * len(feed)
    progress.stage("context", blocks, "blocks")

    def learn(work: tuple[int, int]) -> None:
        number, block = work
        features = feed.blocks(range(block, block + 1), 1)[0].features
        kernels.learn(
            features.ids,
            features.offsets,
            state.scales,
            state.kept,
            state.draw,
            settings.seed * blocks + number,
            np.float32(settings.rate * (1 - number / blocks)),
            state.inputs,
            state.outputs,
            state.squares,
        )

    numbers = np.concatenate([order.permutation(len(feed)) for _ in range(settings.epochs)])
    for done, _ in enumerate(map_unordered(learn, enumerate(numbers.tolist()), threads), 1):
        progress.advance(done)


def _scales(
    space: FeatureSpace, labelled: LabelledRows, resources: Resources, progress: Progress, crew: Crew
) -> tuple[Floats, Floats]:
    """How much each feature tells of the labels, and by how many standard errors."""
    counts = np.zeros((len(space), len(labelled.labels.names)))
    for block in _blocks(
        FeatureFeed(space, labelled, 0, resources, progress, crew, distinct=True), resources
    ):
        kernels.count_classes(
            block.features.ids,
            block.features.offsets,
            block.labels,
            block.label_offsets,
            block.weights,
            counts,
        )
    scales, sureness = np.zeros(len(space), np.float32), np.zeros(len(space), np.float32)
    kernels.tell(counts, rows_of_classes(labelled), scales, sureness)
    return scales, sureness


def _draw(feed: FeatureFeed, kept: Floats, threads: int) -> Numbers:
    """What is drawn from: features by how often they are asked for, a little flattened; empty if none is."""
    counts = np.zeros(len(kept))
    for start in range(0, len(feed), BLOCKS_AT_ONCE):
        for block in feed.blocks(range(start, min(start + BLOCKS_AT_ONCE, len(feed))), threads):
            counts += np.bincount(block.features.ids, minlength=len(kept))
    weights: npt.NDArray[Any] = (counts * kept) ** DRAW_POWER
    if not weights.any():
        return np.zeros(0, np.uint32)
    ends = np.cumsum(weights / weights.sum())
    places = (np.arange(DRAW_SIZE) + 0.5) / DRAW_SIZE
    return np.minimum(np.searchsorted(ends, places), len(kept) - 1).astype(np.uint32)


def _blocks(feed: FeatureFeed, resources: Resources) -> "list[Block]":
    return feed.blocks(range(len(feed)), resources.threads)
