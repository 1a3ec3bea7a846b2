"""Rows of datasets: damaged ones are told before a kernel meets them."""

import h5py
import numpy as np
import pytest
from tests.tasks import write_labelled

import manyhands
from manyhands.data.labelled_rows import rows_of_split
from manyhands.errors import InputError
from manyhands.text.corpus import word_counts
from manyhands.text.vocabulary import UNKNOWN


def damaged(tmp_path, array: str, value: int) -> manyhands.Dataset:
    dataset = manyhands.prepare(write_labelled(tmp_path / "raw.txt", 300), tmp_path / "data")
    with h5py.File(next((tmp_path / "data").glob("train-*.h5")), "r+") as file:
        file[array][0] = value
    return manyhands.open_dataset(dataset.folder)


def test_a_word_that_the_vocabulary_lacks(tmp_path):
    examples = rows_of_split(damaged(tmp_path, "tokens", 60_000), "train")
    with pytest.raises(InputError, match="holds words that its vocabulary lacks"):
        examples.corpus.take(np.arange(len(examples)))


def test_a_label_that_has_no_name(tmp_path):
    with pytest.raises(InputError, match=r"the labels of .* are damaged"):
        rows_of_split(damaged(tmp_path, "labels", 77), "train")


def test_what_the_manifest_and_the_offsets_know_is_what_the_tokens_say(tmp_path):
    manyhands.prepare(str(write_labelled(tmp_path / "raw.txt", 3000)), tmp_path / "data", vocabulary_size=12)
    examples = rows_of_split(manyhands.open_dataset(tmp_path / "data"), "train")
    corpus, rows = examples.corpus, np.arange(len(examples))
    tokens, offsets = corpus.take(rows)
    assert corpus.lengths(rows).tolist() == np.diff(offsets).tolist()
    assert word_counts(corpus, 1).tolist() == np.bincount(tokens, minlength=len(corpus.words)).tolist()
    assert word_counts(corpus, 1)[UNKNOWN] > 0
    some = examples.take(rows[5:90:3])
    assert some.corpus.lengths(np.array([2, 0])).tolist() == np.diff(offsets)[[11, 5]].tolist()
    assert word_counts(some.corpus, 2).sum() == some.corpus.tokens < corpus.tokens
    assert len({examples.fingerprint, some.fingerprint, examples.first(9).fingerprint}) == 3
    again = rows_of_split(manyhands.open_dataset(tmp_path / "data"), "train")
    assert again.fingerprint == examples.fingerprint
