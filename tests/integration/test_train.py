"""Training as a user does it: the verbs one after the other, kills, Ctrl-C, and what goes wrong."""

import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.tasks import write_labelled

from manyhands import prepare
from manyhands.bundle.bundle import TENSORS, load_bundle
from manyhands.errors import UsageError
from manyhands.evaluation.predict import predict
from manyhands.training.checkpoint import checkpoints


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    raw = write_labelled(folder / "raw.txt", 3000, 3)
    prepare(str(raw), folder / "data")
    return folder / "data"


def test_from_reviews_to_predictions(manyhands, prepared):
    trained = manyhands("train", prepared, "--out", "run", "--json")
    assert trained.code == 0, trained.err
    record = json.loads(trained.out)
    assert record["scores"]["test"]["accuracy"] > 0.97
    judged = json.loads(manyhands("evaluate", "run", prepared, "--json").out)
    assert judged["accuracy"] == record["scores"]["test"]["accuracy"]
    assert sum(map(sum, judged["confusion"])) == judged["rows"]
    said = manyhands("predict", "run", "--top", "2", stdin=b"great superb food\n\nawful, broken\n")
    lines = [line.split("\t") for line in said.out.splitlines()]
    assert [line[0] for line in (lines[0], lines[2])] == ["2", "0"]
    assert len(lines) == 3
    assert float(lines[0][1]) + float(lines[0][3]) <= 1.0001
    one = json.loads(manyhands("predict", "run", "--json", stdin=b"great").out)
    assert one["labels"] == ["2"]
    why = manyhands("explain", "run", "great food")
    assert why.out.splitlines()[0].startswith("2 ")
    assert "great" in why.out
    every = json.loads(
        manyhands("explain", "run", "--global", "--data", prepared, "--top", "5", "--json").out
    )
    assert [*every["labels"]] == ["0", "1", "2"]
    assert every["named"] == every["features"]
    assert all(one["weight"] > 0 for found in every["labels"].values() for one in found)
    words = manyhands("explain", "run", "--global", "--label", "2", "--top", "3").out.splitlines()
    assert words[0] == "2"
    assert len(words) == 6  # the label, a head, three words, how many have a name
    assert words[-1].endswith("by the bundle's words; --data names more")
    for wrong, said in (
        (("--global", "a text"), "leave out the text"),
        ((), "no text to explain"),
        (("a text", "--data", prepared), "--data is for --global"),
        (("a text", "--top", "-1"), "--top"),
    ):
        refused = manyhands("explain", "run", *wrong)
        assert refused.code == 2
        assert said in refused.err
    assert manyhands("quantize", "run", "--size", "60KB", "--out", "small").code == 0
    small = json.loads(manyhands("evaluate", "small", prepared, "--json").out)
    assert len(manyhands("predict", "run", prepared).out.splitlines()) == judged["rows"]
    assert abs(small["accuracy"] - judged["accuracy"]) < 0.005


def test_the_validation_split_chooses_and_the_test_split_is_looked_at_once(manyhands, prepared):
    record = json.loads(manyhands("train", prepared, "--out", "run", "--json", "--epochs", "6").out)
    scores = record["scores"]
    best = scores["valid"][scores["best_epoch"] - 1]["accuracy"]
    assert best == max(epoch["accuracy"] for epoch in scores["valid"])
    assert isinstance(scores["test"], dict)


def start(folder: Path, data: Path, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "manyhands", "train", str(data), "--out", "run", "--deterministic"]
    command += [
        "--model",
        "fasttext",
        "--epochs",
        "40",
        "--dim",
        "64",
        "--checkpoint-seconds",
        "0",
        "--early-stopping",
        "99",
    ]
    return subprocess.Popen([*command, *more], cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE)


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "run" / TENSORS).read_bytes()).hexdigest()


def test_a_killed_run_goes_on_to_the_same_weights(tmp_path, prepared):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir(), killed.mkdir()
    began = time.monotonic()
    assert start(whole, prepared).wait(500) == 0
    seconds = time.monotonic() - began
    draw, kills, more = random.Random(11), 0, []
    for attempt in range(6):
        run = start(killed, prepared, *more)
        while attempt == 0 and not checkpoints(killed / ".run.checkpoint"):
            assert run.poll() is None  # once at least it is killed in its work, however busy the machine is
            time.sleep(0.01)
        try:
            run.wait(draw.uniform(0.3, 0.95) * seconds if attempt else 0)
            break
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()
            kills += 1
        if (killed / "run").exists():  # killed when all was written
            break
        more = ["--resume"]
    assert kills
    if not (killed / "run").exists():
        assert start(killed, prepared, "--resume").wait(500) == 0
    assert digest(killed) == digest(whole)
    assert sorted(path.name for path in killed.iterdir()) == ["run"]


@pytest.mark.parametrize(
    ("options", "folder"), [([], ".run.checkpoint"), (["--checkpoints", "kept"], "kept/run")]
)
def test_ctrl_c_can_be_resumed(tmp_path, prepared, options, folder):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "of others").touch()
    run = start(tmp_path, prepared, *options)
    while not checkpoints(tmp_path / folder):
        assert run.poll() is None
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=500)
    assert run.returncode == 5, said
    assert b"interrupted; to continue, repeat the command with --resume" in said
    assert start(tmp_path, prepared, "--resume", *options).wait(500) == 0
    assert not (tmp_path / folder).exists()
    assert (tmp_path / "kept" / "of others").exists()


def test_new_rows_continue_an_old_model(manyhands, prepared, tmp_path):
    assert manyhands("train", prepared, "--out", "run").code == 0
    extra = tmp_path / "extra.txt"
    extra.write_text(
        "".join(f"__label__new quite outlandish thing number {n}\n" for n in range(200))
        + "__label__0 awful\n"
    )
    done = manyhands("train", extra, "--continue-from", "run", "--out", "more")
    assert done.code == 0, done.err
    assert manyhands("predict", "more", stdin=b"quite outlandish thing").out.startswith("new\t")
    assert manyhands("predict", "more", stdin=b"superb lovely great").out.startswith("2\t")


def test_events_for_tensorboard(manyhands, prepared, tmp_path):
    done = manyhands("train", prepared, "--out", "run", "--track", "tensorboard")
    assert done.code == 0, done.err
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run")).Reload()
    assert len(events.Scalars("epoch/accuracy")) == len(events.Scalars("epoch/loss")) >= 2
    assert manyhands("train", prepared, "--out", "run", "--overwrite").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["train", "DATA", "--out", "x", "--model", "ngram"], 2, "did you mean ngrams?"),
        (["train", "DATA", "--out", "x", "--dim", "10"], 2, "--dim is for --model fasttext or lstm or"),
        (["train", "DATA", "--out", "x", "--epochs", "0"], 2, "--epochs: Input should be greater"),
        (["train", "DATA", "--out", "x", "--char-ngrams", "5-3"], 2, "--char-ngrams 5-3 is not a range"),
        (["train", "DATA", "--out", "x", "--format", "csv"], 2, "--format is for raw files"),
        (["train", "DATA", "--out", "x", "--lr", "1e300"], 2, "--learning-rate: Input should be less than"),
        (["train", "DATA", "--out", "x", "--model", "fasttext", "--dim", "4096", "--memory", "256MB",
          "--ngrams", "5", "--min-count", "1"], 2, "lower --buckets or --ngrams"),
        (["train", "one.txt", "--out", "x"], 3, "all rows to train on have the same label, 'good'"),
        (["train", "empty.txt", "--out", "x"], 3, "holds no rows"),
        (["train", "nolabel.txt", "--out", "x"], 3, "has no labels"),
        (["evaluate", "missing", "DATA"], 3, "missing does not exist; make one with"),
        (["predict", "DATA"], 3, "is a dataset, not a bundle"),
        (["predict", "one.txt"], 3, "one.txt is a file, not a bundle (a folder that train writes)"),
        (["inspect", "one.txt"], 3, "one.txt is a file, not a dataset (a folder that prepare writes)"),
        (["evaluate", "one.txt", "DATA"], 3, "read as word vectors, since a bundle is a folder"),
        (["evaluate", "DATA", "one.txt"], 3, "is a dataset, not a bundle"),
        (["import", "one.txt", "--out", "x"], 3, "one.txt"),
        (["train", "DATA", "--out", "x", "--track", "wandb"], 2, "there is no tracker 'wandb'"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_sentence(manyhands, prepared, tmp_path, arguments, code, said):
    (tmp_path / "one.txt").write_text("__label__good fine\n__label__good great\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "nolabel.txt").write_text("just words\nand more\n")
    done = manyhands(*[prepared if argument == "DATA" else argument for argument in arguments])
    assert done.code == code, done.err
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not (tmp_path / "x").exists()


def test_options_without_a_use_are_refused(manyhands, prepared, tmp_path):
    assert manyhands("train", prepared, "--out", "run").code == 0
    raw = tmp_path / "raw.txt"
    raw.write_text("__label__0 awful broken\n")
    for arguments, said in [
        (["predict", "run", raw, "--labels", "stars"], "No such option: --labels"),
        (["predict", "run", raw, "--label-field", "x"], "--label-field is for tables of numbers"),
        (["predict", "run", raw, "--split", "valid"], "--split is for prepared datasets"),
        (["predict", "run", prepared, "--text-field", "x"], "--text-field is for raw files"),
        (["evaluate", "run", raw, "--split", "valid"], "--split is for prepared datasets"),
        (["evaluate", "run", prepared, "--labels", "stars"], "--labels is for raw files"),
    ]:
        done = manyhands(*arguments)
        assert done.code == 2 and said in done.err and not done.out, done
    with pytest.raises(UsageError, match="there is no setting 'labels'"):
        predict(load_bundle(tmp_path / "run"), raw, labels="stars")
    by_default = json.loads(manyhands("evaluate", "run", prepared, "--json").out)
    assert by_default == json.loads(manyhands("evaluate", "run", prepared, "--split", "test", "--json").out)
    inspected = manyhands("inspect", "run")
    assert inspected.code == 3 and "run is a bundle, not a dataset" in inspected.err


def test_labels_that_are_all_unknown_are_an_error(manyhands, prepared, tmp_path):
    assert manyhands("train", prepared, "--out", "run").code == 0
    for labels in ("__label__bad awful\n__label__good great\n", "__label__bad,__label__good awful great\n"):
        (tmp_path / "odd.txt").write_text(labels.replace(",", " "))
        done = manyhands("evaluate", "run", "odd.txt")
        assert done.code == 3 and not done.out, done
        assert "no row has a label of the model, 0, 1, 2; the labels of the rows are bad, good" in done.err


def test_resume_says_what_it_finds(manyhands, prepared, tmp_path):
    first = manyhands("train", prepared, "--out", "run", "--resume", "--effort", "0")
    assert (first.code, first.err) == (0, "no checkpoint for run; training from the start\n")
    before = (tmp_path / "run" / TENSORS).read_bytes()
    again = manyhands("train", prepared, "--out", "run", "--resume")
    assert (again.code, again.err) == (2, "manyhands: run is finished: there is nothing to resume\n")
    assert (tmp_path / "run" / TENSORS).read_bytes() == before
    assert manyhands("train", prepared, "--out", "run", "--resume", "--overwrite").code == 0


def test_the_summary_tells_of_early_stopping(manyhands, prepared, tmp_path):
    shown = manyhands("train", prepared, "--out", "run", "--epochs", "30", "--early-stopping", "1").out
    scores = json.loads((tmp_path / "run" / "record.json").read_text())["scores"]
    ran, best = len(scores["train"]), scores["best_epoch"]
    assert ran == best + 1 < 30
    loss = scores["train"][best - 1]["loss"]
    assert f", {ran} of 30 epochs (early stopping), loss {loss:.4f}\n" in shown
    whole = manyhands("train", prepared, "--out", "two", "--epochs", "2").out
    assert ", 2 of 2 epochs, loss" in whole


def test_unknown_labels_are_counted_and_told(manyhands, prepared, tmp_path):
    assert manyhands("train", prepared, "--out", "run").code == 0
    (tmp_path / "odd.txt").write_text("__label__0 awful broken\n__label__never great\n")
    judged = json.loads(manyhands("evaluate", "run", "odd.txt", "--json").out)
    assert judged["unknown_labels"] == 1
    assert judged["accuracy"] == 0.5
    (tmp_path / "odd.txt").write_text("__label__0 awful broken\n__label__0\nno label\n")
    judged = json.loads(manyhands("evaluate", "run", "odd.txt", "--json").out)
    assert (judged["rows"], judged["left_out"]) == (1, 2)


def test_one_line_for_each_line_whatever_it_holds(manyhands, prepared, tmp_path):
    assert manyhands("train", prepared, "--out", "run").code == 0
    odd = (
        b"fine\n\n\xff\xfe bad bytes\n" + "漢字 ünï\n".encode() + b"x" * 100_000 + b"\n\tgreat \x00 day\nlast"
    )
    done = manyhands("predict", "run", stdin=odd)
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == 7


def test_what_other_launchers_set_does_not_matter_alone(manyhands, prepared):
    done = manyhands("train", prepared, "--out", "run", env={"RANK": "1", "WORLD_SIZE": "2"})
    assert done.code == 0, done.err
    assert manyhands("predict", "run", stdin=b"great superb food").out.startswith("2\t")
