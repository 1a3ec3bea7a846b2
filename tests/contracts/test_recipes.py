"""A newcomer's model and spread: each one file and one catalog line, and every verb takes them."""

import json

import pytest
from tests.tasks import write_labelled

from manyhands import catalog
from manyhands.cli.main import _run
from manyhands.records import Silent
from manyhands.run.train import train


@pytest.fixture(autouse=True)
def newcomers(monkeypatch):
    monkeypatch.setitem(catalog.LEARNERS, "toy", "tests.contracts.toy_model:Toy")
    monkeypatch.setitem(catalog.SPREADS, "rested", "tests.contracts.toy_spread:Rested")


@pytest.fixture
def rows(tmp_path):
    return write_labelled(tmp_path / "rows.txt", 1000, 3)


@pytest.fixture
def manyhands(capsys):
    def run(*words):
        code = _run([str(word) for word in words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_their_options_are_in_the_help(manyhands):
    code, shown, _ = manyhands("train", "--help")
    assert code == 0
    panels = shown[shown.index("--model toy: naive Bayes") :]
    assert "--smoothing <float>" in panels and "Added to the count of every word." in panels
    assert "[default: 1.0]" in panels
    assert "--rest-seconds" in shown[shown.index("--spread rested: rests first") :]


def test_train_evaluate_predict(manyhands, rows, tmp_path):
    chosen = ("--model", "toy", "--smoothing", "0.5", "--spread", "rested", "--rest-seconds", "0.1")
    code, shown, said = manyhands("train", rows, "--out", tmp_path / "run", *chosen, "--json")
    assert code == 0, said
    record = json.loads(shown)
    assert (record["model"], record["spread"]) == ("toy", "rested")
    assert (record["settings"]["smoothing"], record["settings"]["rest_seconds"]) == (0.5, 0.1)
    assert record["examples_seen"] == 2000
    code, shown, _ = manyhands("evaluate", tmp_path / "run", rows, "--json")
    assert json.loads(shown)["accuracy"] > 0.95
    texts = tmp_path / "texts.txt"
    texts.write_text("awful broken food\na great lovely day\n")
    code, shown, _ = manyhands("predict", tmp_path / "run", texts, "--format", "text")
    assert [line.split("\t")[0] for line in shown.splitlines()] == ["0", "2"]


def test_what_they_cannot_do_is_said(manyhands, rows, tmp_path):
    manyhands("train", rows, "--out", tmp_path / "run", "--model", "toy")
    code, _, said = manyhands("explain", tmp_path / "run", "good")
    assert code == 2
    assert "toy models cannot be explained; train one with --model ngrams, fasttext or lstm" in said
    code, _, said = manyhands("train", rows, "--out", tmp_path / "x", "--model", "toy", "--window", "3")
    assert (code, "--window is for --model skipgram or charlstm, not for toy" in said) == (2, True)
    code, _, said = manyhands("train", rows, "--out", tmp_path / "x", "--rest-seconds", "1")
    assert (code, "--rest-seconds is for --spread rested, not for single" in said) == (2, True)
    more = ("--spread", "rested", "--rest-seconds", "10")
    code, _, said = manyhands("train", rows, "--out", tmp_path / "x", "--model", "toy", *more)
    assert (code, "longer than anyone rests" in said) == (2, True)


class StopAfter(Silent):
    def __init__(self, reports):
        self._left = reports

    def stage(self, name, total, unit):
        pass

    def advance(self, done, note=""):
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


def test_resume_and_continue(manyhands, rows, tmp_path):
    settings = {"model": "toy", "epochs": 30, "spread": "rested", "checkpoint_seconds": 0}
    whole = train(rows, tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        train(rows, tmp_path / "run", **settings, progress=StopAfter(12))
    words = ("--model", "toy", "--epochs", 30, "--spread", "rested", "--checkpoint-seconds", 0)
    code, shown, said = manyhands("train", rows, "--out", tmp_path / "run", *words, "--resume", "--json")
    assert code == 0, said
    assert json.loads(shown)["examples_seen"] == whole.record["examples_seen"] == 30_000
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run"))
    assert first == second
    more = ("--continue-from", tmp_path / "run", "--model", "toy")
    code, _, said = manyhands("train", rows, "--out", tmp_path / "x", *more, "--smoothing", "3")
    assert (code, "--smoothing 1.0, which cannot become 3" in said) == (2, True)
    code, _, said = manyhands("train", rows, "--out", tmp_path / "x", *more)
    assert code == 0, said
