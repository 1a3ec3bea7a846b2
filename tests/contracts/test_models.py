"""Every model of the catalog that tells labels is held to the same: a line there, and all these run on it."""

import numpy as np
import pytest
from tests.tasks import RESOURCES, begin, examples, multi_label, texts

from manyhands.bundle.bundle import VERSION, Bundle, BundleConfig, open_bundle, save_bundle
from manyhands.catalog import LEARNERS, load
from manyhands.evaluation.evaluate import judge
from manyhands.models.learner import Piece
from manyhands.records import Resources, Silent
from manyhands.settings import TextSettings
from manyhands.spread.single import Single
from manyhands.text.corpus import corpus_of
from manyhands.text.labelled_rows import LabelledRows, Labels
from manyhands.text.ragged import Ragged, from_strings
from manyhands.training.exchange import Alone
from manyhands.training.job import job_for

LABELLERS = [name for name in LEARNERS if load(LEARNERS, "model", name).learns == "labels"]
pytestmark = pytest.mark.parametrize("name", LABELLERS)


def trained(name, rows, previous=None, threads=2, **settings):
    old = bundle_of(name, previous) if previous else None
    job = job_for(name, settings, Resources(threads, RESOURCES.memory_bytes), previous=old)
    return Single().run(job, rows, None, Silent())


def bundle_of(name, model):
    facts = model.facts()
    config = BundleConfig(
        version=VERSION,
        model=name,
        labels=facts.pop("labels"),
        label_scheme="as-is",
        text=TextSettings(),
        facts=facts,
        settings={},
    )
    return Bundle(config, model)


@pytest.mark.parametrize("labels", [2, 4])
def test_it_learns(name, labels):
    model = trained(name, examples(1500, labels)).model
    assert judge(model, examples(400, labels, seed=1)).accuracy > 0.97


def test_it_learns_several_labels(name):
    model = trained(name, multi_label(2000), epochs=8).model
    report = judge(model, multi_label(400, seed=1))
    assert report.micro_f1 > 0.9
    assert model.multi_label


def test_probabilities(name):
    model = trained(name, examples(600, 4)).model
    scores = model.scores(examples(50, 4, seed=2).corpus)
    assert np.allclose(scores.sum(axis=1), 1, atol=1e-5)
    assert scores.min() >= 0


def test_texts_without_anything_known_have_a_score(name):
    model = trained(name, examples(600)).model
    scores = model.scores(corpus_of(from_strings(["", "zyzzyva", "ßß øø 漢字"])))
    assert scores.shape == (3, 2)
    assert np.isfinite(scores).all()
    assert np.allclose(scores[0], scores[1])


@pytest.mark.parametrize("labels", [2, 12])
def test_texts_score_the_same_by_the_shortest_way(name, labels):
    """A few texts and many, long ones and empty ones; and letters where the model takes words apart."""
    normal = from_strings(
        [*texts(600)[0], "", "great", "zyzzyva", ("food staff " * 2_000).strip(), "naïve 漢字 x"]
    )
    rows = examples(600, 4) if labels == 2 else _of_many_labels(600, labels)
    for settings in [{}, {"char_ngrams": "3-4"}] if name != "lstm" else [{}]:
        model = trained(name, rows, epochs=1, **settings).model
        expected = model.scores(model.read(normal))
        assert np.allclose(model.score_texts(normal), expected, atol=1e-5)
        few = Ragged(normal.data, normal.offsets[590:])
        assert np.allclose(model.score_texts(few), expected[590:], atol=1e-5)


def _of_many_labels(count, labels):
    """More labels than the vectors of fasttext have numbers."""
    rows = examples(count, 4)
    ids = np.arange(count, dtype=np.int32) % labels
    return LabelledRows(rows.corpus, Labels.single(ids, [str(k) for k in range(labels)]), rows.weights)


def test_the_same_weights_in_every_run_and_with_any_threads(name):
    rows = examples(900)
    runs = [
        trained(name, rows, threads=threads, deterministic=True).model.arrays() for threads in (1, 2, 3, 2)
    ]
    for other in runs[1:]:
        assert runs[0].keys() == other.keys()
        assert all(np.array_equal(runs[0][key], other[key]) for key in runs[0])


def test_another_seed_gives_other_weights(name):
    one, two = (trained(name, examples(300), deterministic=True, seed=seed).model.arrays() for seed in (0, 1))
    assert not all(np.array_equal(one[key], two[key]) for key in one)


def test_facts_and_arrays_are_all_there_is_to_it(name, tmp_path):
    model = trained(name, examples(600, 3)).model
    save_bundle(tmp_path, bundle_of(name, model), None, "", None)
    again = open_bundle(tmp_path)
    again.verify()
    rows = examples(100, 3, seed=3).corpus
    assert np.array_equal(again.model.scores(rows), model.scores(rows))


@pytest.mark.parametrize("labels", [2, 15])
def test_facts_and_arrays_need_no_file(name, labels):
    """Fifteen labels and a scale fill a line of the cache: views of them must not be taken for whole rows."""
    truth = np.arange(300, dtype=np.int32) % labels
    texts = from_strings([f"word{label} and{label} more" for label in truth])
    names = [str(label) for label in range(labels)]
    rows = LabelledRows(corpus_of(texts), Labels.single(truth, names), np.ones(300, np.float32))
    model = trained(name, rows).model
    again = type(model).from_parts(model.facts(), model.arrays())
    assert np.allclose(again.scores(rows.corpus), model.scores(rows.corpus), atol=1e-6)


def test_a_lesson_with_new_labels_and_words_is_added(name):
    old = trained(name, examples(800, 2), deterministic=True).model
    both = trained(name, examples(1600, 4, seed=5), previous=old, deterministic=True).model
    assert both.labels == ["label 0", "label 1", "label 2", "label 3"]
    assert judge(both, examples(400, 4, seed=6)).accuracy > 0.95


def test_continuing_begins_where_the_model_was(name):
    """With no rate to speak of, the model stays as it is; it would know nothing had it begun anew."""
    old = trained(name, examples(800, 2)).model
    same = trained(name, examples(50, 2, seed=9), previous=old, learning_rate=1e-6, epochs=1).model
    rows = examples(300, 2, seed=7).corpus
    assert np.allclose(same.scores(rows), old.scores(rows), atol=0.02)


def test_weights_of_zero_are_rows_left_out(name):
    rows = examples(800, 2)
    wrong = rows.labels.ids.copy()
    wrong[400:] = 1 - wrong[400:]
    weights = np.ones(800, np.float32)
    weights[400:] = 0
    half = type(rows)(rows.corpus, type(rows.labels).single(wrong, rows.labels.names), weights)
    assert judge(trained(name, half).model, examples(400, 2, seed=1)).accuracy > 0.9


def test_losses_are_sums(name):
    """The loss of a block twice as heavy is twice the loss."""
    kind, rows = load(LEARNERS, "model", name), examples(200)
    learner, feed = begin(kind, kind.Settings(), rows)
    whole = Piece(0, 0, feed.rows(0))
    light = learner.learn(feed.piece(whole, 0), 0.0, 1, Alone())
    double = type(rows)(rows.corpus, rows.labels, np.full(200, 2, np.float32))
    learner, feed = begin(kind, kind.Settings(), double)
    heavy = learner.learn(feed.piece(whole, 0), 0.0, 1, Alone())
    assert heavy.rows == 2 * light.rows
    assert heavy.total == pytest.approx(2 * light.total, rel=1e-4)
