"""Rows of numbers: found by themselves, trained on, judged, predicted; and never mistaken for reviews."""

import json

import numpy as np
import pytest

from manyhands.data.numbers import holds_numbers, read_numbers
from manyhands.errors import InputError, UsageError
from manyhands.settings import PrepareSettings

HEAD = "length,width,depth,kind\n"


def flowers(path, rows=240, seed=0, head=HEAD):
    """Three kinds, each round a point of its own."""
    draw = np.random.default_rng(seed)
    with path.open("w") as file:
        file.write(head)
        for number in range(rows):
            kind = number % 3
            a, b, c = draw.normal([[1, 5, 100], [2, 5, 140], [2, 8, 100]][kind], [0.2, 0.4, 6])
            file.write(f"{a:.3f},{b:.3f},{c:.1f},kind-{kind}\n")
    return path


@pytest.mark.parametrize("cell", ["lstm", "equations"])
def test_from_a_table_to_predictions(manyhands, tmp_path, cell):
    train, test = flowers(tmp_path / "train.csv"), flowers(tmp_path / "test.csv", 90, seed=1)
    options = ["--model", "lstm", "--cell", cell, "--hidden-size", "16,24", "--epochs", "25"]
    done = manyhands("train", train, *options, "--out", "run")
    assert done.code == 0, done.err
    judged = json.loads(manyhands("evaluate", "run", test, "--json").out)
    assert judged["rows"] == 90
    assert judged["accuracy"] >= 0.95
    said = manyhands("predict", "run", test).out.splitlines()
    right = [line.startswith(f"kind-{number % 3}\t") for number, line in enumerate(said)]
    assert sum(right) / 90 == pytest.approx(judged["accuracy"])
    bare = tmp_path / "bare.csv"
    bare.write_text("1.0,5.0,100\n2.0,5.1,141\n")
    assert [line[:6] for line in manyhands("predict", "run", bare).out.splitlines()] == ["kind-0", "kind-1"]
    more = manyhands("train", test, "--model", "lstm", "--continue-from", "run", "--out", "more")
    assert more.code == 0, more.err
    texts = tmp_path / "texts.txt"
    texts.write_text("__label__kind-0 some words\n__label__kind-1 other words\n")
    assert "numbers" in manyhands("evaluate", "run", texts).err


def test_other_models_say_what_reads_numbers(manyhands, tmp_path):
    done = manyhands("train", flowers(tmp_path / "train.csv"), "--out", "run")
    assert done.code == 2
    assert "the model reads texts, and these rows are numbers; use --model lstm" in done.err


@pytest.mark.parametrize(
    ("lines", "table"),
    [
        (HEAD + "1,2,3,setosa\n4,5,6,virginica\n", True),
        ("1,2,3,setosa\n4,5,6,virginica\n7,8,9,x\n", True),
        ("a\tb\tc\n1\t2\tone\n3\t4\ttwo\n", True),
        ("label,text\n1,good food\n0,bad food\n", False),
        ("stars,time,text\n5,1390000,good food and nice people\n1,1390001,bad\n", False),
        ("5,good\n1,bad\n", False),
        ('{"reviewText": "good", "overall": 5}\n', False),
        ("", False),
    ],
)
def test_what_is_taken_for_a_table(tmp_path, lines, table):
    path = tmp_path / "rows.csv"
    path.write_text(lines)
    assert holds_numbers([str(path)], PrepareSettings()) is table


def test_rows_that_lack_something_are_left_out(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b,kind\n1,2,x\n3,,y\n4,5,\n6,7,y\n")
    examples = read_numbers([str(path)], PrepareSettings())
    assert (len(examples), examples.left_out) == (2, 2)
    assert examples.corpus.values.tolist() == [[1, 2], [6, 7]]
    assert examples.labels.names == ["x", "y"]


def test_which_column_is_the_label(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b,c\n1,2,0\n3,4,1\n")
    with pytest.raises(UsageError, match=r"which column of .* is the label\? Name it with --label-field"):
        read_numbers([str(path)], PrepareSettings(format="numbers"))
    with pytest.raises(UsageError, match="has no column 'd'; there are: a, b, c"):
        read_numbers([str(path)], PrepareSettings(format="numbers", label_field="d"))
    examples = read_numbers([str(path)], PrepareSettings(format="numbers", label_field="c"))
    assert examples.labels.names == ["0", "1"]
    assert examples.corpus.values.shape == (2, 2)
    path.write_text("a,b\nx,y\n")
    with pytest.raises(UsageError, match="which column"):
        read_numbers([str(path)], PrepareSettings(format="numbers"))
    path.write_text("a,b,k\n1,2,x\n1,2\n")
    with pytest.raises(InputError, match="is not a table"):
        read_numbers([str(path)], PrepareSettings(format="numbers"))
