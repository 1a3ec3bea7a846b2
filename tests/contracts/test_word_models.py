"""Every model of the catalog that learns vectors of words is held to the same."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from tests.tasks import RESOURCES, TOPICS, begin, running_text, told_apart, unlabelled

from manyhands.bundle.bundle import VERSION, Bundle, BundleConfig, load_classifier, open_bundle, save_bundle
from manyhands.bundle.word_vectors import embedding_of
from manyhands.catalog import LEARNERS, load
from manyhands.errors import InputError, UsageError
from manyhands.models.learner import Piece
from manyhands.records import Resources, Silent
from manyhands.settings import TextSettings
from manyhands.spread.single import Single
from manyhands.training.exchange import Alone
from manyhands.training.job import job_for

WORD_MODELS = [name for name in LEARNERS if load(LEARNERS, "model", name).learns == "words"]
pytestmark = pytest.mark.parametrize("name", WORD_MODELS)

SMALL = {"dim": 20, "sample": 1.0, "min_count": 1}
SIZES = {
    "skipgram": {"learning_rate": 0.1, "epochs": 4},
    "charlstm": {"hidden_size": 32, "char_dim": 16, "learning_rate": 0.02, "epochs": 10},
}


def trained(name, rows, valid=None, previous=None, threads=2, **settings):
    old = bundle_of(name, previous) if previous else None
    wanted = {**SMALL, **SIZES[name], **settings}
    job = job_for(name, wanted, Resources(threads, RESOURCES.memory_bytes), previous=old)
    return Single().run(job, unlabelled(rows), valid and unlabelled(valid), Silent())


@cache
def learnt(name):
    """A model of the topics, which several tests only look at."""
    return trained(name, running_text(1000)).model


def bundle_of(name, model):
    config = BundleConfig(
        version=VERSION,
        model=name,
        labels=[],
        label_scheme="none",
        text=TextSettings(),
        facts=model.facts(),
        settings={},
    )
    return Bundle(config, model)


def test_words_that_stand_together_are_alike(name):
    assert told_apart(learnt(name).embedding(None)) > 0.3


def test_held_out_text_becomes_likelier(name):
    state = trained(name, running_text(1500), running_text(200, seed=1), epochs=5).state
    likelihoods = [epoch["log_likelihood"] for epoch in state.history]
    assert likelihoods[-1] > likelihoods[0] + 0.01
    assert state.best_epoch == int(np.argmax(likelihoods)) + 1


def test_training_stops_when_held_out_text_gets_no_likelier(name):
    """Text of other neighbours: what is learnt of the first does not help."""
    rows = running_text(300)
    shuffled = " ".join(running_text(300, seed=1)).split()
    np.random.default_rng(0).shuffle(shuffled)
    valid = [" ".join(shuffled[start : start + 10]) for start in range(0, len(shuffled), 10)]
    state = trained(name, rows, valid, epochs=200, early_stopping=2).state
    assert state.epoch < 200
    assert state.epoch == state.best_epoch + 2


def test_the_same_weights_in_every_run_and_with_any_threads(name):
    rows = running_text(300)
    runs = [
        trained(name, rows, threads=threads, deterministic=True, epochs=2).model.arrays()
        for threads in (1, 2, 3, 2)
    ]
    for other in runs[1:]:
        assert runs[0].keys() == other.keys()
        assert all(np.array_equal(runs[0][key], other[key]) for key in runs[0])


def test_another_seed_gives_other_weights(name):
    one, two = (
        trained(name, running_text(200), deterministic=True, seed=seed, epochs=1).model.arrays()
        for seed in (0, 1)
    )
    assert not np.array_equal(one["contexts"], two["contexts"])


def test_facts_and_arrays_are_all_there_is_to_it(name, tmp_path):
    model = learnt(name)
    save_bundle(tmp_path, bundle_of(name, model), None, "", None)
    again = open_bundle(tmp_path)
    again.verify()
    mine, read = model.embedding(None), embedding_of(again)
    assert read.vocabulary.words.equals(mine.vocabulary.words)
    assert np.array_equal(read.vectors, mine.vectors)
    feed = model.sampling.held_out(unlabelled(running_text(50, seed=2)).corpus)
    assert np.array_equal(again.model.losses(feed, 0, len(feed), 2), model.losses(feed, 0, len(feed), 1))
    with pytest.raises(UsageError, match="word vectors"):
        load_classifier(tmp_path)


def test_damaged_arrays_are_refused(name, tmp_path):
    model = trained(name, running_text(200), epochs=1).model
    for spoilt, wrong in (
        ("contexts", model.arrays()["contexts"][:-1]),
        ("word_offsets", model.arrays()["word_offsets"][::-1].copy()),
        ("counts", model.arrays()["counts"] - 10**6),
        ("letters", model.arrays()["letters"][:-1]),
    ):
        with pytest.raises(InputError):
            type(model).from_parts(model.facts(), {**model.arrays(), spoilt: wrong})


def test_text_with_new_words_is_added(name):
    old = trained(name, [row.replace("comet", "kometa") for row in running_text(600)]).model
    both = trained(name, running_text(600, seed=3), previous=old).model
    words = both.embedding(None).vocabulary.words.to_pylist()
    before = old.embedding(None).vocabulary.words.to_pylist()
    assert words[: len(before)] == before
    assert set(words) - set(before) == {"comet"}
    assert told_apart(both.embedding(None)) > 0.3


def test_continuing_begins_where_the_model_was(name):
    old = learnt(name)
    same = trained(name, running_text(50, seed=9), previous=old, learning_rate=1e-7, epochs=1).model
    assert np.allclose(same.embedding(None).vectors, old.embedding(None).vectors, atol=1e-3)


def test_losses_are_sums_over_pieces(name):
    """The parts of a block have the loss and the pairs of the whole: nothing is counted twice."""
    kind = load(LEARNERS, "model", name)
    learner, feed = begin(kind, kind.Settings(**SMALL), unlabelled(running_text(200)))
    rows = feed.rows(0)
    whole = learner.learn(feed.piece(Piece(0, 0, rows), 0), 0.0, 1, Alone())
    cuts = (0, rows // 3, rows // 2, rows)
    parts = [
        learner.learn(feed.piece(Piece(0, first, last), 0), 0.0, 1, Alone()) for first, last in pairwise(cuts)
    ]
    assert sum(part.rows for part in parts) == whole.rows > 0
    assert sum(part.total for part in parts) == pytest.approx(whole.total, rel=1e-5)


def test_a_feed_tells_every_word_once(name):
    kind = load(LEARNERS, "model", name)
    rows = unlabelled(running_text(200))
    _, feed = begin(kind, kind.Settings(**SMALL), rows)
    assert sum(feed.rows(block) for block in range(len(feed))) == rows.corpus.tokens
    words = [feed.piece(Piece(block, 0, feed.rows(block)), 0) for block in range(len(feed))]
    assert sum(piece.end - piece.begin for piece in words) == rows.corpus.tokens


@pytest.mark.parametrize("more", [{"window": 60, "negatives": 10}, {"window": 12, "negatives": 25}])
def test_wide_windows_and_many_negatives_are_learnt_as_calmly(name, more):
    draw = np.random.default_rng(0)
    words = (2000 * draw.random((60, 200)) ** 3).astype(int)  # some are frequent, most are rare
    rows = [" ".join(f"w{word}" for word in row) for row in words]
    settings = {"learning_rate": 0.04} if name == "skipgram" else {"epochs": 2}
    outcome = trained(name, rows, **more, **settings)
    assert np.isfinite(outcome.model.embedding(None).vectors).all()
    untold = np.log(2) * (1 + more["negatives"])  # of who knows nothing
    assert outcome.state.history[-1]["loss"] < untold


def test_held_out_text_without_neighbours_says_nothing(name):
    state = trained(name, running_text(200), ["whale", "ocean"], epochs=4).state
    assert state.epoch == 4
    assert state.best_epoch == 0
    assert "log_likelihood" not in state.history[0]


def test_text_without_neighbours_cannot_be_learnt(name):
    with pytest.raises(InputError, match="nothing to learn"):
        trained(name, " ".join(TOPICS).split() * 20, epochs=1)


def test_class_weights_are_for_labels(name):
    with pytest.raises(UsageError, match="class-weights"):
        trained(name, running_text(50), class_weights="balanced")


@pytest.mark.parametrize("rows", [["word word word word"], ["a b c d"], [""]])
def test_too_little_text(name, rows):
    with pytest.raises(InputError, match=r"two are needed|no word"):
        trained(name, rows, min_count=2)


def test_what_letters_can_do_for_words_never_seen(name):
    """``charlstm`` reads any word; ``skipgram`` does so by runs of letters, if it has them."""
    if name == "skipgram":
        model = trained(name, running_text(1000), char_ngrams="3-4", buckets=1 << 12).model
    else:
        model = learnt(name)
    embedding = model.embedding(None)
    vectors, known = embedding.vectors_of(["orchestras", "Телескоп", "漢字漢字", ""])
    assert known.tolist() == [True, True, True, False]
    assert np.isfinite(vectors).all()
    assert np.abs(vectors[:3]).sum(axis=1).min() > 0
    near, _ = embedding.vectors_of(["orchestra"])
    cosine = vectors[0] @ near[0] / np.linalg.norm(vectors[0]) / np.linalg.norm(near[0])
    assert cosine > 0.5
