"""What words add to the score of a recurrent network: the parts add up, and are where they should be."""

import time

import numpy as np
import pytest

from manyhands.bundle.bundle import Bundle
from manyhands.bundle.explain import explain, word_parts
from manyhands.models.losses import LOSSES
from manyhands.models.recurrent import attribution
from manyhands.models.recurrent.attribution import integrated_gradients
from manyhands.models.recurrent.backprop import Work, forwards
from manyhands.models.recurrent.lstm import Lstm
from manyhands.models.recurrent.network import Network, Shape
from manyhands.models.recurrent.sequences import Packed
from manyhands.models.recurrent.settings import LstmSettings
from manyhands.records import Silent
from manyhands.run.train import train
from manyhands.text.corpus import corpus_of
from manyhands.text.ragged import from_strings
from manyhands.training.exchange import Alone
from tests.tasks import RESOURCES, examples, texts, write_labelled


def work_of(cell="lstm", both=False, widths=(16,), pool="max", loss="softmax"):
    network = Network.at_random(Shape(cell, (6, *widths), both, 3), 9, seed=3)
    return Work(network, network.embedding, LOSSES[loss], pool)


def score(work, vectors, label):
    """By the equations: an output without the mean of all, of a single text."""
    steps = len(vectors)
    packed = Packed(
        np.arange(steps), np.ones(steps, int), np.arange(steps), np.array([steps]), np.zeros(1, int)
    )
    outputs = forwards(Work(work.network, vectors, work.loss, work.pool), packed).outputs[0]
    return outputs[label] - (outputs.mean() if work.loss == LOSSES["softmax"] else 0)


@pytest.mark.parametrize("loss", ["softmax", "one-vs-all"])
@pytest.mark.parametrize(
    ("cell", "both", "widths", "pool"),
    [
        ("lstm", False, (16,), "max"),
        ("lstm", True, (16, 21), "mean"),
        ("gru", True, (16,), "last"),
        ("gru", False, (16, 16), "max"),
    ],
)
def test_completeness(cell, both, widths, pool, loss):
    """The parts are the change of the score from vectors of zero: without any correction, to 1 %."""
    work = work_of(cell, both, widths, pool, loss)
    vectors = np.random.default_rng(1).normal(0, 1, (30, 6)).astype(np.float32)
    for label in range(3):
        found = integrated_gradients(work, vectors, label)
        assert found.score == pytest.approx(score(work, vectors, label), abs=1e-5)
        assert found.before == pytest.approx(score(work, np.zeros_like(vectors), label), abs=1e-5)
        size = np.abs(found.parts).sum()
        assert abs(found.parts.sum() - (found.score - found.before)) < 0.01 * size


def test_points_may_be_taken_in_turns(monkeypatch):
    work, vectors = work_of(), np.random.default_rng(2).normal(0, 1, (50, 6)).astype(np.float32)
    whole = integrated_gradients(work, vectors, 1).parts
    monkeypatch.setattr(attribution, "STEPS_AT_ONCE", 130)
    assert np.allclose(integrated_gradients(work, vectors, 1).parts, whole, atol=1e-5)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Bundle:
    folder = tmp_path_factory.mktemp("explained")
    data = write_labelled(folder / "train.txt", 1200, 2)
    return train(data, folder / "run", model="lstm", dim=16, hidden_size=32, max_length=40).bundle


def test_the_word_that_tells_the_label_has_the_largest_part(bundle):
    """The label of these reviews is in one word: the parts must find it, and where it stands."""
    right = 0
    rows, truth = texts(200, 2, seed=8)
    for text, label in zip(rows, truth, strict=True):
        found = explain(bundle, text, str(label))
        best = found.parts[0]
        right += (
            best.part > 0 and text.split()[best.place] == best.ngram in "awful cold broken fine decent okay"
        )
    assert right >= 195


def test_words_that_are_not_read_have_no_part(bundle):
    text = "zyzzyva fine " + "food " * 60
    found = explain(bundle, text)
    parts = word_parts(bundle, text, found)
    assert found.unknown == ["zyzzyva"]
    assert parts[0].part == 0 and all(part.part == 0 for part in parts[41:])
    assert sum(part.part for part in parts) + found.bias == pytest.approx(found.score, abs=1e-4)
    nothing = explain(bundle, "zyzzyva")
    assert nothing.parts == [] and nothing.bias == nothing.score


def test_a_text_of_a_default_model_takes_less_than_a_tenth_of_a_second():
    """300 words, in seconds of the processor, with room for a machine that has other things to do."""
    learner = Lstm.begin(LstmSettings(), examples(300), None, RESOURCES, Silent(), Alone())
    model, corpus = learner.model(), corpus_of(from_strings([" ".join(texts(40)[0])]))
    assert len(corpus.take(np.zeros(1, int))[0]) >= 300
    model.explain(corpus, 0)
    began = time.process_time()
    for _ in range(3):
        model.explain(corpus, 0)
    assert (time.process_time() - began) / 3 < 0.2
