"""Unlabelled texts beside labelled rows: what they teach, when they are left alone, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manyhands
from manyhands.errors import InputError, UsageError
from manyhands.models.ngram.ngrams import rows_of_classes
from manyhands.run import unlabelled
from manyhands.storage.tensors import read_tensors
from manyhands.text.corpus import corpus_of, joined
from manyhands.text.labelled_rows import SHARES, LabelledRows, Labels
from manyhands.text.ragged import from_strings

WORDS, TELLING, LENGTH = 300, 4, 12
LABELLED, UNLABELLED, TESTED = 150, 3000, 1000


def _reviews(rows, seed):
    """Labels that are told by many rare words: a few labelled rows hold only some of them."""
    random = np.random.default_rng(seed)
    found = []
    for label in random.choice(["bad", "good"], rows):
        telling = [f"{label}{number}" for number in random.integers(0, WORDS, TELLING)]
        others = [f"word{number}" for number in random.integers(0, WORDS, LENGTH - TELLING)]
        words = np.array(telling + others)
        found.append((str(label), " ".join(random.permutation(words))))
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unlabelled")
    rows = {"few": 60, "train": LABELLED, "test": TESTED, "unlabelled": UNLABELLED}
    made = {}
    for seed, (name, count) in enumerate(rows.items()):
        made[name] = folder / f"{name}.txt"
        start = "" if name == "unlabelled" else "__label__{} "
        lines = (start.format(label) + text for label, text in _reviews(count, seed))
        made[name].write_text("\n".join(lines) + "\n", "utf-8")
    return made


def _train(files, out, data="train", **settings):
    if "model" not in settings:  # the letters of these words would tell all without any other text
        settings = {"effort": 0, "loss": "softmax", "learning_rate": 8.0, **settings}
    trained = manyhands.train(files[data], out, threads=2, deterministic=True, **settings)
    assert trained is not None
    return trained


def test_unlabelled_texts_teach_words_that_no_labelled_row_has(files, tmp_path):
    _train(files, tmp_path / "plain")
    trained = _train(files, tmp_path / "more", unlabelled=files["unlabelled"])
    accuracy = {run: manyhands.evaluate(tmp_path / run, files["test"]).accuracy for run in ("plain", "more")}
    assert accuracy["more"] > accuracy["plain"] + 0.05
    found = json.loads((tmp_path / "more" / "record.json").read_text())["unlabelled"]
    assert found == trained.record["unlabelled"]
    assert found["used"] and found["rows"] == UNLABELLED and found["held_out_rows"] == LABELLED // 5
    assert found["held_out"]["with"]["accuracy"] > found["held_out"]["without"]["accuracy"]
    assert trained.record["data"]["rows"] == LABELLED + UNLABELLED


def test_the_same_weights_in_every_deterministic_run(files, tmp_path):
    for run in ("first", "second"):
        _train(files, tmp_path / run, unlabelled=[files["unlabelled"]])
    first, second = (read_tensors(tmp_path / run / "model.safetensors")[0] for run in ("first", "second"))
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_what_is_taught_wrongly_is_not_used_and_changes_nothing(files, tmp_path, monkeypatch):
    right = unlabelled._labelled_by

    def wrong(teacher, texts):
        taught = right(teacher, texts)
        return replace(taught, labels=replace(taught.labels, ids=1 - taught.labels.ids))

    monkeypatch.setattr(unlabelled, "_labelled_by", wrong)
    _train(files, tmp_path / "plain")
    trained = _train(files, tmp_path / "more", unlabelled=files["unlabelled"])
    assert not trained.record["unlabelled"]["used"]
    plain, more = (read_tensors(tmp_path / run / "model.safetensors")[0] for run in ("plain", "more"))
    assert all(np.array_equal(plain[name], more[name]) for name in plain)


def test_too_few_labelled_rows_learn_as_if_there_were_no_others(files, tmp_path):
    _train(files, tmp_path / "plain", "few")
    trained = _train(files, tmp_path / "more", "few", unlabelled=files["unlabelled"])
    assert not trained.record["unlabelled"]["used"]
    plain, more = (read_tensors(tmp_path / run / "model.safetensors")[0] for run in ("plain", "more"))
    assert all(np.array_equal(plain[name], more[name]) for name in plain)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": "skipgram"}, "--unlabelled is for classifiers; skipgram learns from any text"),
        ({"spread": "allreduce", "workers": 2}, "--unlabelled needs --spread single"),
    ],
)
def test_what_cannot_use_unlabelled_texts_says_so(files, tmp_path, settings, said):
    with pytest.raises(UsageError, match=said):
        _train(files, tmp_path / "out", unlabelled=files["unlabelled"], **settings)


def test_labels_of_several_are_refused(files, tmp_path):
    several = tmp_path / "several.txt"
    several.write_text("__label__a __label__b one\n__label__a two\n__label__b three\n")
    with pytest.raises(UsageError, match="rows of one label each"):
        _train({"train": several}, tmp_path / "out", unlabelled=files["unlabelled"])


def test_an_empty_file_of_unlabelled_texts_is_an_error(files, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(InputError, match=r"empty\.txt"):
        _train(files, tmp_path / "out", unlabelled=tmp_path / "empty.txt")
    assert not (tmp_path / "out").exists()


@given(st.lists(st.lists(st.floats(0.01, 1), min_size=3, max_size=3), min_size=1, max_size=20))
def test_shared_labels_are_probabilities_in_equal_parts(weights):
    likely = np.array(weights) / np.sum(weights, axis=1, keepdims=True)
    labels = Labels.shared(likely, ["a", "b", "c"])
    for row, expected in enumerate(likely):
        parts = np.bincount(labels.take(np.array([row])).ids, minlength=3)
        assert parts.sum() == SHARES
        assert np.abs(parts / SHARES - expected).max() <= 1 / SHARES


def test_a_row_is_shared_by_its_labels():
    corpus = corpus_of(from_strings(["good", "bad"]))
    labels = Labels.shared(np.array([[0.25, 0.75], [1.0, 0.0]]), ["bad", "good"])
    rows = LabelledRows(corpus, labels, np.array([1, 2], np.float32))
    assert rows_of_classes(rows).tolist() == [2.25, 0.75]


Texts = st.lists(st.lists(st.sampled_from("abcd"), max_size=4).map(" ".join), min_size=1, max_size=8)


@given(Texts, Texts)
def test_joined_corpora_hold_the_rows_of_both(first, second):
    both = joined(corpus_of(from_strings(first)), corpus_of(from_strings(second)))
    rows = np.random.default_rng(len(first)).permutation(len(first) + len(second))
    assert both.tokens == sum(len(text.split()) for text in first + second)
    texts = [text.strip() for text in both.texts(rows).strings()]
    assert texts == [(first + second)[row] for row in rows]
    assert both.lengths(rows).tolist() == [len(text.split()) for text in texts]
