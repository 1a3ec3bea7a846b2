"""The verbs as a user runs them: results on standard output, everything else on standard error."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Outcome, reviews, write_jsonl

import manyhands as library
from manyhands.catalog import LEARNERS
from manyhands.cli.main import VERBS

Run = Callable[..., Outcome]


def test_prepare_and_inspect(manyhands: Run, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "r.jsonl", [*reviews(300), ("same", 5), ("same", 5), ("", 1)])
    shown = manyhands("prepare", "r.jsonl", "--out", "out")
    assert shown.code == 0 and not shown.err
    assert "303 read = 301 kept + 1 duplicates + 1 empty + 0 rejected" in shown.out
    facts = json.loads(manyhands("inspect", "out", "--length", "8", "--json").out)
    assert facts["rows"] == 301 and facts["splits"] == library.open_dataset(tmp_path / "out").manifest.splits
    assert sum(rows for _, _, rows in facts["lengths"]) == 301
    assert sum(sum(split.values()) for split in facts["labels"].values()) == 301
    assert 0 < facts["coverage"] < 1
    again = manyhands("inspect", "out", "--length", "8").out
    assert "8 tokens cover" in again and "negative" in again


def test_every_verb_has_help(manyhands: Run) -> None:
    for verb in ("prepare", "inspect", "export", "sample", "doctor"):
        shown = manyhands(verb, "--help")
        assert shown.code == 0 and "Usage" in shown.out
    assert manyhands("--version").out.strip() == f"manyhands {library.__version__}"


def test_without_arguments_the_help_is_shown(manyhands: Run) -> None:
    bare = manyhands()
    assert bare == manyhands("--help") == manyhands("-h") and bare.code == 0 and not bare.err
    assert bare.out.startswith("Usage: ")
    columns = [line.index(summary) for verb, summary in VERBS.items() for line in bare.out.splitlines()
               if line.split()[:1] == [verb]]  # fmt: skip
    assert len(columns) == len(VERBS) and len(set(columns)) == 1, "the summaries stand in one column"
    for verb in ("prepare", "doctor"):  # with options made from settings, and without
        assert manyhands(verb, "-h").out == manyhands(verb, "--help").out


def test_help_tells_which_of_two_flags_is_the_default(manyhands: Run) -> None:
    shown = " ".join(manyhands("prepare", "--help").out.split())
    assert "--lower / --keep-case Lower-case all text. [default: lower]" in shown
    assert "<br />. [default: html]" in shown and "[default: deduplicate]" in shown
    assert "Trains on one thread. --early-stopping" in " ".join(manyhands("train", "--help").out.split())


def test_help_of_options_that_models_share_is_right_for_all(manyhands: Run) -> None:
    most_used = manyhands("train", "--help").out.partition("\nRun:")[0]
    lines = [" ".join(line.split()) for line in most_used.splitlines()]
    assert "--batch-size <int> Rows or words per batch." in lines
    assert "--hidden-size Size of the hidden state of a layer." in lines, "a number or a list of them"
    assert "--dim <int> Size of the embedding vectors." in lines


def test_tune_names_the_models_that_it_can_tune(manyhands: Run) -> None:
    shown = manyhands("tune", "--help").out
    assert all(model in shown.partition("Model to tune:")[2].partition(".")[0] for model in LEARNERS)


def test_doctor(manyhands: Run) -> None:
    facts = json.loads(manyhands("doctor", "--json").out)
    assert facts["cores"] >= 1 and facts["memory_bytes"] > 1e8
    parts = {part["name"]: part for part in facts["parts"]}
    assert parts["numba"]["version"] and not parts["numba"]["remedy"]
    missing = [part for part in facts["parts"] if not part["version"]]
    assert all(part["remedy"] for part in missing)
    assert "numba" in manyhands("doctor").out


def test_export_and_sample(manyhands: Run, tmp_path: Path) -> None:
    assert manyhands("sample", "--rows", "1_000", "--out", "raw.jsonl", "--seed", "3").code == 0
    printed = manyhands("sample", "--rows", "1000", "--seed", "3")
    assert printed.out == (tmp_path / "raw.jsonl").read_text()
    assert manyhands("prepare", "raw.jsonl", "--out", "data").code == 0
    shown = manyhands("export", "data", "--to", "wide.h5", "--length", "20", "--parts", "2")
    assert "rows of 20 ids and a label, in 2 datasets" in shown.out


def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    library.sample(40_000, tmp_path / "raw.jsonl")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "manyhands", "prepare", "raw.jsonl", "--out", "out"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # the terminal closed
        pass
    out, _ = process.communicate(timeout=500)
    assert process.returncode == 0
    assert b"reading" in shown and b"MB/s" in shown
    assert b"kept" in out


def test_real_reviews(real_data: Path, tmp_path: Path) -> None:
    """Amazon's own files: duplicates, rows without a text, and labels by the stars."""
    amazon = real_data / "reviews" / "amazon"
    fashion = library.prepare(
        str(amazon / "AMAZON_FASHION_5.json.gz"), tmp_path / "fashion", max_rejected=0.02
    )
    ledger = fashion.manifest.ledger
    assert (ledger.read, ledger.rejected) == (3176, 16) and ledger.kept <= 439
    music = library.prepare(str(amazon / "Musical_Instruments_5.json.gz"), tmp_path / "music", labels="stars")
    assert music.manifest.ledger.read == 10_261 and music.manifest.ledger.adds_up
    yelp = library.prepare(
        str(real_data / "reviews" / "yelp_sentences" / "train.csv.zst"),
        tmp_path / "yelp",
        test_files=[str(real_data / "reviews" / "yelp_sentences" / "test.csv.zst")],
        labels="polarity",
    )
    assert yelp.manifest.ledger.read == 126_670 + 63_483
    assert set(yelp.label_names) == {"negative", "positive"}
    train, test = ({row.tobytes() for row in yelp[split]} for split in ("train", "test"))
    assert len(test) > 40_000
    shared = [
        row
        for row in train & test
        if 2 not in memoryview(row).cast("H" if yelp["train"][0].itemsize == 2 else "I")
    ]
    assert not shared, "nothing is trained on what is tested"
