"""A user's mistakes, through the command line: one sentence, the right exit code, nothing half-made."""

import gzip
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.conftest import Outcome, reviews, write_jsonl

import manyhands as library

Run = Callable[..., Outcome]


def refused(outcome: Outcome, code: int, *parts: str) -> None:
    """One sentence on standard error that holds ``parts``; no traceback, nothing on standard output."""
    assert outcome.code == code, outcome
    assert outcome.err.startswith("manyhands: ") and outcome.err.count("\n") == 1, outcome.err
    assert "Traceback" not in outcome.err and not outcome.out
    for part in parts:
        assert part in outcome.err, outcome.err


def only(folder: Path, *names: str) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)


def test_missing_file_and_pattern(manyhands: Run, tmp_path: Path) -> None:
    refused(manyhands("prepare", "nowhere.jsonl", "--out", "out"), 3, "nowhere.jsonl does not exist")
    refused(manyhands("prepare", "*.jsonl", "--out", "out"), 3, "no file matches *.jsonl")
    only(tmp_path)


def test_wrong_usage(manyhands: Run) -> None:
    refused(manyhands("prepare", "x.jsonl"), 2, "--out")
    refused(manyhands("prepare", "x.jsonl", "--out", "o", "--lables", "stars"), 2, "--lables")
    refused(manyhands("nonsense"), 2, "nonsense")
    refused(manyhands("sample", "--rows", "many"), 2, "--rows many")


def test_a_folder_that_exists_already(manyhands: Run, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "r.jsonl", reviews(20))
    assert manyhands("prepare", "r.jsonl", "--out", "out").code == 0
    before = (tmp_path / "out" / "manifest.json").read_bytes()
    refused(manyhands("prepare", "r.jsonl", "--out", "out"), 2, "exists already", "--overwrite")
    assert (tmp_path / "out" / "manifest.json").read_bytes() == before
    assert manyhands("prepare", "r.jsonl", "--out", "out", "--overwrite", "--seed", "5").code == 0
    assert (tmp_path / "out" / "manifest.json").read_bytes() != before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("not a dataset")
    refused(manyhands("prepare", "r.jsonl", "--out", "mine", "--overwrite"), 2, "is not a dataset")
    only(tmp_path, "r.jsonl", "out", "mine")
    only(tmp_path / "mine", "precious.txt")


def test_an_empty_folder_may_become_a_dataset(manyhands: Run, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "r.jsonl", reviews(20))
    (tmp_path / "out").mkdir()
    assert manyhands("prepare", "r.jsonl", "--out", "out").code == 0
    assert len(library.open_dataset(tmp_path / "out")) == 20


def test_truncated_and_broken_compression(manyhands: Run, tmp_path: Path) -> None:
    data = gzip.compress(
        b"\n".join(json.dumps({"reviewText": t, "overall": s}).encode() for t, s in reviews(5000))
    )
    (tmp_path / "short.json.gz").write_bytes(data[:-100])
    refused(manyhands("prepare", "short.json.gz", "--out", "out"), 3, "short.json.gz is cut short")
    (tmp_path / "bad.json.gz").write_bytes(data[:3000] + b"garbage" + data[3007:])
    refused(manyhands("prepare", "bad.json.gz", "--out", "out"), 3, "bad.json.gz cannot be read")
    only(tmp_path, "short.json.gz", "bad.json.gz")


def test_a_line_of_100_megabytes(manyhands: Run, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "r.jsonl", reviews(200))
    with (tmp_path / "r.jsonl").open("a") as file:
        file.write('{"overall": 5, "reviewText": "' + "word " * 20_000_000 + '"}\n')
        file.write('{"overall": 5, "reviewText": "after the long one"}\n')
    outcome = manyhands("prepare", "r.jsonl", "--out", "out", "--json")
    assert outcome.code == 0, outcome
    manifest = json.loads(outcome.out)
    assert manifest["ledger"] == {"read": 202, "kept": 201, "duplicates": 0, "empty": 0, "rejected": 1}
    assert (tmp_path / "out" / "rejected.csv").read_text().splitlines()[1].startswith('"r.jsonl",201,')


def test_missing_fields(manyhands: Run, tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_text('{"words": "some text", "points": 3}\n' * 3)
    refused(
        manyhands("prepare", "odd.jsonl", "--out", "out"), 3, "odd.jsonl", "words, points", "--text-field"
    )
    refused(
        manyhands("prepare", "odd.jsonl", "--out", "out", "--text-field", "words"),
        3,
        "--label-field",
        "--labels none",
    )
    chosen = ("--text-field", "words", "--label-field", "points", "--labels", "stars")
    assert manyhands("prepare", "odd.jsonl", "--out", "out", *chosen).code == 0
    (tmp_path / "plain.jsonl").write_text("this is not JSON\n")
    refused(manyhands("prepare", "plain.jsonl", "--out", "o2"), 3, "plain.jsonl line 1", "--format")
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    refused(
        manyhands("prepare", "odd.csv", "--out", "o2", "--text-field", "c", "--label-field", "a"),
        3,
        "no column 'c'",
    )


def test_labels_out_of_range(manyhands: Run, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "r.jsonl", [("fine words", 5), ("too good", 11)])
    outcome = manyhands("prepare", "r.jsonl", "--out", "out")
    refused(outcome, 3, "1 of 2 rows", "r.jsonl line 2", "the label is not a whole number of stars")
    only(tmp_path, "r.jsonl")


def test_rows_with_a_wrong_number_of_columns(manyhands: Run, tmp_path: Path) -> None:
    rows = "".join(f'"{1 + n % 2}","text number {n}"\n' for n in range(300))
    (tmp_path / "y.csv").write_text(rows + '"1","a","b"\n"2"\n"1","fine again"\n')
    outcome = manyhands("prepare", "y.csv", "--out", "out", "--labels", "polarity", "--json")
    assert outcome.code == 0, outcome
    assert json.loads(outcome.out)["rejections"] == {"1 columns, not 2": 1, "3 columns, not 2": 1}
    rejected = (tmp_path / "out" / "rejected.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in rejected[1:]] == ["301", "302"]


@pytest.mark.parametrize("verb", ["prepare", "sample", "export"])
def test_no_space_left(tmp_path: Path, verb: str) -> None:
    """A limit on the size of files fails a write as a full disk does."""
    library.sample(20_000, tmp_path / "raw.jsonl")
    if verb == "export":
        library.prepare(str(tmp_path / "raw.jsonl"), tmp_path / "data")
    arguments = {
        "prepare": ["prepare", "raw.jsonl", "--out", "out"],
        "sample": ["sample", "--rows", "20000", "--out", "out.jsonl"],
        "export": ["export", "data", "--to", "out.h5"],
    }[verb]
    before = sorted(path.name for path in tmp_path.iterdir())
    done = subprocess.run(
        [sys.executable, "-m", "manyhands", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000)),
        check=False,
    )
    refused(Outcome(done.returncode, done.stdout, done.stderr), 2, "no space left")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_place_that_cannot_be_written(manyhands: Run, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "r.jsonl", reviews(5))
    (tmp_path / "file").write_text("in the way")
    refused(manyhands("prepare", "r.jsonl", "--out", "file/out"), 2, "file/out cannot be written")
    refused(manyhands("prepare", "r.jsonl", "--out", "file"), 2, "is not a dataset")


def test_damaged_datasets(manyhands: Run, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "r.jsonl", reviews(50))
    assert manyhands("prepare", "r.jsonl", "--out", "out").code == 0
    assert "all checksums match" in manyhands("inspect", "out", "--verify").out
    part = tmp_path / "out" / "train-000.h5"
    whole = part.read_bytes()
    part.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert manyhands("inspect", "out").code == 0
    refused(manyhands("inspect", "out", "--verify"), 3, "train-000.h5", "wrong checksum")
    part.write_bytes(whole[:-1])
    refused(manyhands("inspect", "out"), 3, "train-000.h5", "bytes", "prepare the dataset again")
    part.write_bytes(b"x" * len(whole))
    refused(manyhands("inspect", "out"), 3, "train-000.h5", "damaged")
    part.unlink()
    refused(manyhands("inspect", "out"), 3, "train-000.h5", "missing")
    manifest = tmp_path / "out" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("train-000.h5", "../r.jsonl"))
    refused(manyhands("inspect", "out"), 3, "is not a manifest")
    manifest.unlink()
    refused(manyhands("inspect", "out"), 3, "is not a complete dataset", "prepare")
    refused(manyhands("inspect", "nowhere"), 3, "does not exist")


def test_a_url_without_its_extra(manyhands: Run) -> None:
    hidden = "import sys; sys.modules['s3fs'] = None; sys.argv[1:] = ['prepare', 's3://b/x', '--out', 'o']; "
    done = subprocess.run(
        [sys.executable, "-c", hidden + "from manyhands.cli.main import run; run()"],
        capture_output=True,
        text=True,
        check=False,
    )
    refused(Outcome(done.returncode, done.stdout, done.stderr), 4, "pip install 'manyhands[s3]'")


def test_output_can_be_piped_to_something_that_stops_reading(tmp_path: Path) -> None:
    command = f"{sys.executable} -m manyhands sample --rows 100000 | head -n 2"
    done = subprocess.run(command, shell=True, capture_output=True, cwd=tmp_path, timeout=500, check=False)
    assert done.stdout.count(b"\n") == 2 and not done.stderr, done.stderr


def test_input_is_never_touched(manyhands: Run, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "r.jsonl", reviews(50))
    path.chmod(0o444)
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    assert manyhands("prepare", "r.jsonl", "--out", "out").code == 0
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_a_folder_with_a_manifest_of_something_else_is_left_alone(manyhands: Run, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "r.jsonl", reviews(5))
    (tmp_path / "extension").mkdir()
    (tmp_path / "extension" / "manifest.json").write_text('{"manifest_version": 3}')
    refused(
        manyhands("prepare", "r.jsonl", "--out", "extension", "--overwrite"), 2, "is not a complete dataset"
    )
    (tmp_path / "extension" / "precious.txt").write_text("hi")
    refused(manyhands("prepare", "r.jsonl", "--out", "extension", "--overwrite"), 2, "is not a dataset")
    only(tmp_path / "extension", "manifest.json", "precious.txt")


def test_folders_with_what_cannot_be_read(manyhands: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    write_jsonl(tmp_path / "folder" / "r.jsonl", reviews(5))
    os.mkfifo(tmp_path / "folder" / "pipe.jsonl")
    refused(manyhands("prepare", "folder", "--out", "out"), 3, "pipe.jsonl cannot be read as a file")


def test_numbers_that_make_no_sense(manyhands: Run, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "r.jsonl", reviews(5))
    for option, value in [
        ("--valid", "1"),
        ("--valid", "nan"),
        ("--min-count", "1" + "0" * 60),
        ("--threads", "1000000000"),
        ("--memory", "999999999999TB"),
        ("--vocabulary-size", "0"),
        ("--seed", "-1"),
    ]:
        refused(manyhands("prepare", "r.jsonl", "--out", "out", option, value), 2)
    refused(manyhands("sample", "--rows", "5", "--seed", "18446744073709551616"), 2)
    refused(manyhands("prepare", "-", "--test-file", "-", "--out", "out"), 2, "standard input")


def test_labels_that_look_like_markup(manyhands: Run, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(
        '{"text": "words", "label": "[/b]"}\n{"text": "others", "label": "[red]x"}\n'
    )
    shown = manyhands("prepare", "r.jsonl", "--out", "x[/b]y")
    assert shown.code == 0 and "[/b]" in shown.out and "[red]x" in shown.out


def test_text_without_a_suffix(manyhands: Run, tmp_path: Path) -> None:
    (tmp_path / "text8").write_text("word " * 400_000)
    assert manyhands("prepare", "text8", "--out", "out").code == 0
    (tmp_path / "long.jsonl").write_text(json.dumps({"text": "word " * 400_000, "label": "a"}) + "\n")
    assert manyhands("prepare", "long.jsonl", "--out", "out2").code == 0
    (tmp_path / "odd.jsonl").write_text('{"text": "one\u2028two", "label": "a"}\n')
    assert manyhands("prepare", "odd.jsonl", "--out", "out3").code == 0


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    command = f"{sys.executable} -m manyhands sample --rows 10 > /dev/full"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=500, check=False)
    refused(Outcome(done.returncode, done.stdout, done.stderr), 2, "No space left")


def test_parts_of_another_shape(manyhands: Run, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "r.jsonl", reviews(50))
    assert manyhands("prepare", "r.jsonl", "--out", "out").code == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    part = tmp_path / "out" / "train-000.h5"
    for name, values in [
        ("labels", np.zeros(3, np.int32)),
        ("weights", np.zeros(9999, np.float32)),
        ("tokens", np.zeros(10, np.float64)),
        ("offsets", np.zeros((2, 2), np.int64)),
    ]:
        whole = part.read_bytes()
        with h5py.File(part, "a") as file:
            del file[name]
            file[name] = values
        changed = json.loads(json.dumps(manifest))
        changed["parts"][0]["bytes"] = part.stat().st_size
        (tmp_path / "out" / "manifest.json").write_text(json.dumps(changed))
        refused(manyhands("inspect", "out"), 3, "train-000.h5", "damaged")
        part.write_bytes(whole)
    for key, value in (("parts", []), ("rows", 3), ("vocabulary", 1)):
        (tmp_path / "out" / "manifest.json").write_text(json.dumps({**manifest, key: value}))
        refused(manyhands("inspect", "out"), 3, "prepare the dataset again")
