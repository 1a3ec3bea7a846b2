"""An evaluation on the screen, read back from what was printed."""

import json

import numpy as np
import pytest

from manyhands.cli.show import show_scores
from manyhands.evaluation.classification import evaluate_multi_label, evaluate_single_label


def printed(capsys: pytest.CaptureFixture[str], facts: dict) -> list[str]:
    show_scores(json.loads(json.dumps(facts)))
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def identity(labels: int) -> dict:
    """Every row right, and label n in n + 1 rows."""
    truth = np.repeat(np.arange(labels), np.arange(labels) + 1).astype(np.int32)
    return evaluate_single_label(
        np.eye(labels, dtype=np.float32)[truth], truth, [f"l{n}" for n in range(labels)]
    ).facts()


def test_single(capsys: pytest.CaptureFixture[str]) -> None:
    scores = np.array([[0.75, 0.25], [0.25, 0.75], [0.25, 0.75], [0.25, 0.75]], np.float32)
    report = evaluate_single_label(scores, np.array([0, 0, 1, -1], np.int32), ["[b]good[/b]", "bad"])
    assert printed(capsys, report.facts()) == [
        "4 rows: accuracy 0.5000 (0.1500 to 0.8500), macro F1 0.5833 (0.1928 to 0.8914), "
        "micro F1 0.5000 (0.1500 to 0.8500), log loss 0.6539",
        "labels that the model does not know: in 1 rows; they count as wrong",
        "P@1 0.5000, R@1 0.5000",
        "label        precision  recall      F1     95 % of F1  rows",
        "[b]good[/b]     1.0000  0.5000  0.6667  0.1727-0.9504     2",
        "bad             0.3333  1.0000  0.5000  0.1159-0.8841     1",
        "true \\ predicted  [b]good[/b]  bad",
        "[b]good[/b]                 1    1",
        "bad                         0    1",
    ]


def test_several(capsys: pytest.CaptureFixture[str]) -> None:
    scores = np.array([[9, 8, -1], [-2, -3, 7]], np.float32)
    report = evaluate_multi_label(
        scores, np.array([0, 1, 1, 2]), np.array([0, 2, 4]), ["a", "b", "c"], top=(1, 2)
    )
    lines = printed(capsys, report.facts())
    assert lines[:3] == [
        "2 rows: accuracy 0.5000 (0.0945 to 0.9055), macro F1 0.8889 (0.5650 to 0.9801), "
        "micro F1 0.8571 (0.5346 to 0.9691), threshold 0.5",
        "P@1 1.0000, R@1 0.5000",
        "P@2 0.7500, R@2 0.7500",
    ]
    assert len(lines) == 3 + 4, "no confusion matrix"


def test_many_labels(capsys: pytest.CaptureFixture[str]) -> None:
    assert sum("true \\ predicted" in line for line in printed(capsys, identity(10))) == 1
    lines = printed(capsys, identity(30))
    names = [line.split()[0] for line in lines[3:-1]]
    assert names == [f"l{n}" for n in range(29, 4, -1)], "the 25 most frequent"
    assert lines[-1] == "… 5 more"


def test_long_names_stay_on_their_line(capsys: pytest.CaptureFixture[str]) -> None:
    facts = identity(10)
    facts["labels"] = {f"a rather long name of label {name}": of for name, of in facts["labels"].items()}
    assert len(printed(capsys, facts)) == 2 + 11 + 11


def test_large_numbers_stay_whole(capsys: pytest.CaptureFixture[str]) -> None:
    facts = identity(10)
    facts["confusion"] = [[123_456_789] * 10 for _ in range(10)]
    lines = printed(capsys, facts)
    assert [line.count("123,456,789") for line in lines[-10:]] == [10] * 10
