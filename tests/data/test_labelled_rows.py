"""Rows of datasets: damaged ones are told before a kernel meets them."""

import h5py
import pytest
from tests.tasks import write_labelled

import manyhands
from manyhands.data.labelled_rows import rows_of_split
from manyhands.errors import InputError


def damaged(tmp_path, array: str, value: int) -> manyhands.Dataset:
    dataset = manyhands.prepare(write_labelled(tmp_path / "raw.txt", 300), tmp_path / "data")
    with h5py.File(next((tmp_path / "data").glob("train-*.h5")), "r+") as file:
        file[array][0] = value
    return manyhands.open_dataset(dataset.folder)


def test_a_word_that_the_vocabulary_lacks(tmp_path):
    examples = rows_of_split(damaged(tmp_path, "tokens", 60_000), "train")
    with pytest.raises(InputError, match="holds words that its vocabulary lacks"):
        _ = examples.fingerprint


def test_a_label_that_has_no_name(tmp_path):
    with pytest.raises(InputError, match=r"the labels of .* are damaged"):
        rows_of_split(damaged(tmp_path, "labels", 77), "train")
