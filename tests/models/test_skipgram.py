"""The kernel of skip-gram against its definition, word by word; runs of letters; and what is touched."""

import numpy as np
import pyarrow as pa
import pytest

from manyhands.catalog import LEARNERS, load
from manyhands.errors import InputError, UsageError
from manyhands.kernels.simd import aligned_zeros
from manyhands.models.words.sampling import ContextSampling
from manyhands.models.words.skipgram import SkipgramSettings
from manyhands.models.words.subwords import Subwords, means
from manyhands.models.words.windows import Windows
from manyhands.records import Resources, Silent
from manyhands.spread.single import Single
from manyhands.text.ragged import from_strings
from manyhands.text.vocabulary import Vocabulary
from manyhands.training.exchange import Alone
from manyhands.training.job import job_for
from tests.tasks import RESOURCES, running_text, unlabelled

NEGATIVES = 5
NO_WORDS = Vocabulary(pa.array([], pa.large_string()), np.zeros(0, np.int64))
SAMPLING = ContextSampling(NO_WORDS, window=5, negatives=NEGATIVES, sample=1e-4)


def windows(count, reach, words=30, seed=0):
    draw = np.random.default_rng(seed)
    text = draw.integers(0, words, count).astype(np.int32)
    cut = count // 3  # two rows
    firsts = np.where(np.arange(count) < cut, 0, cut).astype(np.int32)
    lasts = np.where(np.arange(count) < cut, cut, count).astype(np.int32)
    reaches = draw.integers(1, reach + 1, count).astype(np.uint8)
    drawn = draw.integers(0, words, -(-count // 16) * 64).astype(np.int32)
    return Windows(text, firsts, lasts, reaches, reach, 0, count, drawn, 64)


def tables(words=30, parts=50, width=32):
    draw = np.random.default_rng(1)
    out = aligned_zeros(parts, width), aligned_zeros(words, width)
    for table in out:
        table[:] = draw.normal(0, 0.5, table.shape)
    return out


def by_definition(text, parts, offsets, inputs, outputs):
    """Loss, pairs and both gradients, one pair after the other."""
    by_inputs, by_outputs = np.zeros(inputs.shape), np.zeros(outputs.shape)
    loss, pairs = 0.0, 0

    def chance(x, y):
        return 1 / (1 + np.exp(-float(x @ y)))

    for i in range(text.begin, text.end):
        own = parts[offsets[text.words[i]] : offsets[text.words[i] + 1]]
        x, dx = inputs[own].mean(axis=0), np.zeros(inputs.shape[1])
        first = max(text.firsts[i], i - int(text.reaches[i]))
        last = min(text.lasts[i], i + int(text.reaches[i]) + 1)
        near = [j for j in range(first, last) if j != i]
        for j in near:
            y = outputs[text.words[j]]
            loss -= np.log(chance(x, y))
            dx += (1 - chance(x, y)) * y
            by_outputs[text.words[j]] += (1 - chance(x, y)) * x
        weight = NEGATIVES * len(near) / text.draws
        for word in text.drawn[i // 16 * text.draws : (i // 16 + 1) * text.draws]:
            z = outputs[word]
            loss -= weight * np.log(1 - chance(x, z))
            dx -= weight * chance(x, z) * z
            by_outputs[word] -= weight * chance(x, z) * x
        for part in own:
            by_inputs[part] += dx
        pairs += len(near)
    return loss, pairs, by_inputs, by_outputs


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 70])
@pytest.mark.parametrize("reach", [1, 5, 9, 40])
def test_the_kernel_does_what_the_definition_says(count, reach):
    text = windows(count, reach)
    draw = np.random.default_rng(3)
    offsets = np.concatenate([[0], np.cumsum(draw.integers(1, 4, 30))])
    parts = draw.permutation(np.resize(np.arange(50), offsets[-1])).astype(np.int32)
    inputs, outputs = tables()
    moves = aligned_zeros(*inputs.shape), aligned_zeros(*outputs.shape)
    loss, pairs, by_inputs, by_outputs = by_definition(text, parts, offsets, inputs, outputs)
    found = SAMPLING.learn(text, (parts, offsets), (inputs, outputs), 1.0, moves)
    assert found == (pytest.approx(loss, rel=1e-4), pairs)
    assert np.allclose(moves[0], by_inputs, atol=2e-3)
    assert np.allclose(moves[1], by_outputs, atol=2e-3)
    assert SAMPLING.learn(text, (parts, offsets), (inputs, outputs)) == pytest.approx(found)


def test_a_small_step_in_place_is_a_step_along_the_gradient():
    """As training does it: what moves are the tables themselves."""
    text, offsets = windows(64, 5), np.arange(31)
    parts = np.arange(30, dtype=np.int32)
    before = tables(parts=30)
    moves = aligned_zeros(30, 32), aligned_zeros(30, 32)
    SAMPLING.learn(text, (parts, offsets), before, 1.0, moves)
    after = before[0].copy(), before[1].copy()
    SAMPLING.learn(text, (parts, offsets), after, 1e-4, after)
    for new, old, gradient in zip(after, before, moves, strict=True):
        assert np.allclose((new - old) / 1e-4, gradient, atol=0.05 * np.abs(gradient).max())


def test_a_word_is_the_mean_of_itself_and_its_runs_of_letters():
    subwords = Subwords((3, 3), 8)
    parts, offsets = subwords.parts(from_strings(["cat", "a"]).arrow().cast("large_string"))
    assert offsets.tolist() == [0, 4, 6]  # cat, <ca, cat, at>; a, <a>
    assert parts[0] == 0
    assert parts[offsets[1]] == 1
    assert (parts[1:4] >= 2).all()
    table = aligned_zeros(2 + 256, 16)
    table[:] = np.random.default_rng(0).normal(size=table.shape)
    made = means(table, parts, offsets)
    assert np.allclose(made[0], table[parts[:4]].mean(axis=0), atol=1e-5)
    unseen, ends = subwords.unseen(from_strings(["cat"]), 2)
    assert unseen.tolist() == parts[1:4].tolist()
    assert ends.tolist() == [0, 3]


def test_too_large_a_model_is_refused_before_it_is_made():
    kind = load(LEARNERS, "model", "skipgram")
    with pytest.raises(UsageError, match="lower --vocabulary-size"):
        kind.begin(
            SkipgramSettings(dim=4096, char_ngrams="3-6", buckets=1 << 28),
            unlabelled(running_text(100)),
            None,
            Resources(1, 1 << 30),
            Silent(),
            Alone(),
        )


@pytest.mark.parametrize("more", [{"learning_rate": 900.0}, {"window": 60, "negatives": 10}])
def test_numbers_that_run_away_are_told(more):
    """Sigmoids of what is not finite are finite: the loss has to tell."""
    job = job_for("skipgram", {"min_count": 1, "sample": 1.0, "epochs": 20, **more}, RESOURCES)
    rows = [" ".join(running_text(12, seed=seed)) for seed in range(40)]
    with pytest.raises(InputError, match=r"the loss became nan|training diverged"):
        Single().run(job, unlabelled(rows), None, Silent())
