"""Whole files: every row and column stays, a label is added, and the rows are counted exactly."""

import bz2
import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manyhands
from manyhands.bundle.bundle import Bundle
from manyhands.data.sources import blocks as blocks_module
from manyhands.data.sources.source import Records, Wording
from manyhands.errors import InputError, UsageError
from manyhands.scoring.insert import NONE, Inserter
from manyhands.scoring.score import score_files
from manyhands.text.ragged import from_strings
from tests.conftest import Outcome
from tests.contracts.test_sources import WRITERS
from tests.tasks import texts, write_labelled

LABEL, PROBABILITY = "predicted_label", "predicted_probability"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("scoring")
    manyhands.train(write_labelled(made / "train.txt", 600), made / "bundle", deterministic=True)
    return made


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Bundle:
    return manyhands.load_bundle(folder / "bundle")


def expected(bundle: Bundle, rows: list[str]) -> list[tuple[str, float]]:
    return [found[0] for found in bundle.predict(rows)]


def same(found: list[tuple[str, str]], wanted: list[tuple[str, float]]) -> bool:
    return all(a == b and abs(float(p) - q) < 1e-6 for (a, p), (b, q) in zip(found, wanted, strict=True))


def test_a_table_with_a_header(bundle: Bundle, tmp_path: Path) -> None:
    rows = ['great, "so" lovely', "awful\nand cold", "superb"]
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerows(
        [["id", "text", "label"], *[[k, text, "x,y"] for k, text in enumerate(rows)]]
    )
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + out.getvalue().encode())
    scored = score_files(bundle, tmp_path / "a.csv", tmp_path / "b.csv")
    made = (tmp_path / "b.csv").read_bytes()
    assert made.startswith(b"\xef\xbb\xbfid,text,label,predicted_label,predicted_probability\r\n")
    _, *found = csv.reader(io.StringIO(made.decode("utf-8-sig"), newline=""))
    assert [row[:3] for row in found] == [[str(k), text, "x,y"] for k, text in enumerate(rows)]
    assert same([(row[3], row[4]) for row in found], expected(bundle, rows))
    assert scored.facts()["ledger"] == {"read": 3, "scored": 3, "empty": 0, "rejected": 0}
    again = score_files(bundle, tmp_path / "b.csv", tmp_path / "c.csv")
    assert again.facts()["columns"] == ["predicted_label_2", "predicted_probability_2"]


def test_a_table_without_a_header_all_in_quotes(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"1","great ""food"""\n"2","awful\\nroom"\n"2",""\n')
    score_files(bundle, tmp_path / "a.csv", tmp_path / "b.csv", format="yelp")
    found = list(csv.reader((tmp_path / "b.csv").open()))
    assert [row[:2] for row in found] == [["1", 'great "food"'], ["2", "awful\\nroom"], ["2", ""]]
    assert same([(row[2], row[3]) for row in found[:2]], expected(bundle, ['great "food"', "awful room"]))
    assert found[2][2:] == ["", ""]
    assert (tmp_path / "b.csv").read_text().endswith('"2","","",""\n')
    assert all(line.count('"') >= 8 for line in (tmp_path / "b.csv").read_text().splitlines())


def test_json_lines_keep_their_bytes(bundle: Bundle, tmp_path: Path) -> None:
    lines = [
        '{"text": "great",  "n": 1.50, "é": [1, {"a": "}"}]}',
        '{"n": 2, "text": "awful"} ',
        '{"text": ""}',
        "",
        '{"text": "half',
        '{"n": 3}',
        "{}",
        '[1, "text"]',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    scored = score_files(bundle, tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz", threads=2)
    made = gzip.decompress((tmp_path / "b.jsonl.gz").read_bytes()).decode().split("\n")
    wanted = expected(bundle, ["great", "awful"])
    for (line, raw), (label, probability) in zip(zip(made, lines, strict=True), wanted, strict=False):
        more = f', "{LABEL}": "{label}", "{PROBABILITY}": {probability:.6f}}}'
        assert line == raw.rstrip()[:-1] + more + raw[len(raw.rstrip()) :]
    assert json.loads(made[2]) == {"text": "", LABEL: None, PROBABILITY: None}
    assert made[3:5] == lines[3:5] and made[6:] == lines[6:]
    assert json.loads(made[5]) == {"n": 3, LABEL: None, PROBABILITY: None}
    assert scored.facts()["ledger"] == {"read": 8, "scored": 2, "empty": 2, "rejected": 4}
    assert scored.parts[0].rejections[0] == "line 5: not valid JSON"


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_parquet_keeps_its_schema(bundle: Bundle, tmp_path: Path, codec: str) -> None:
    rows, _ = texts(500, seed=3)
    table = pa.table(
        {
            "when": pa.array(range(500), pa.timestamp("s", "UTC")),
            "text": pa.array([*rows[:-2], None, ""]),
            "more": pa.array([[k, None] for k in range(500)], pa.list_(pa.int16())),
            "kind": pa.array(["a", "b"] * 250).dictionary_encode(),
        }
    ).replace_schema_metadata({"mine": "yes"})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", compression=codec, row_group_size=200)
    scored = score_files(bundle, tmp_path / "a.parquet", tmp_path / "b.parquet")
    table, made = (pyarrow.parquet.read_table(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    assert made.select(table.schema.names).equals(table)
    assert made.schema.metadata[b"mine"] == b"yes"
    assert made.schema.field(LABEL).type == pa.string()
    found = list(zip(made[LABEL].to_pylist(), made[PROBABILITY].to_pylist(), strict=True))
    assert same(found[:498], expected(bundle, rows[:498])) and found[498:] == [(None, None)] * 2
    facts = pyarrow.parquet.ParquetFile(tmp_path / "b.parquet").metadata.row_group(0).column(0)
    assert facts.compression == {"none": "UNCOMPRESSED", "zstd": "ZSTD"}[codec]
    assert scored.facts()["ledger"] == {"read": 500, "scored": 498, "empty": 1, "rejected": 1}


OPENERS: dict[str, Callable[[Path], bytes]] = {
    "": Path.read_bytes,
    ".gz": lambda path: gzip.decompress(path.read_bytes()),
    ".bz2": lambda path: bz2.decompress(path.read_bytes()),
    ".zst": lambda path: pa.CompressedInputStream(pa.OSFile(str(path)), "zstd").read(),
}


@pytest.mark.parametrize("ending", OPENERS)
def test_many_blocks_are_one_file(
    bundle: Bundle, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the size of a block, and in whatever order threads end."""
    monkeypatch.setattr(blocks_module, "BLOCK_BYTES", 4096)
    monkeypatch.setattr("manyhands.storage.files.HEAD_BYTES", 4096)
    rows, _ = texts(3000, seed=5)
    (tmp_path / "a.txt").write_text("".join(f"{row}\n" for row in rows))
    score_files(bundle, tmp_path / "a.txt", tmp_path / f"b.txt{ending}", threads=3, format="text")
    made = [line.split("\t") for line in OPENERS[ending](tmp_path / f"b.txt{ending}").decode().splitlines()]
    assert [row[0] for row in made] == rows
    assert same([(row[1], row[2]) for row in made], expected(bundle, rows))


@pytest.mark.parametrize("name", WRITERS)
def test_every_format(bundle: Bundle, tmp_path: Path, name: str) -> None:
    suffix, write = WRITERS[name]
    rows = [("1", text) for text in texts(50)[0]]
    (tmp_path / f"a{suffix}").write_bytes(write(rows))
    scored = score_files(bundle, tmp_path / f"a{suffix}", tmp_path / f"b{suffix}", format=name)
    assert scored.facts()["ledger"] == {"read": 50, "scored": 50, "empty": 0, "rejected": 0}
    made = (tmp_path / f"b{suffix}").read_bytes()
    label, probability = expected(bundle, [rows[0][1]])[0]
    if name in ("parquet", "arrow"):
        reader = pyarrow.parquet.read_table if name == "parquet" else pyarrow.ipc.open_file
        table = reader(pa.BufferReader(made))
        table = table if name == "parquet" else table.read_all()
        assert table[LABEL][0].as_py() == label and table.num_rows == 50
    else:
        assert f"{label}" in made.decode() and f"{probability:.6f}" in made.decode()


def test_rows_that_are_too_long_stay(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(blocks_module, "LONGEST_RECORD_BYTES", 2000)
    monkeypatch.setattr("manyhands.storage.files.HEAD_BYTES", 1000)
    long = '{"text": "' + "great " * 2000 + '"}'
    lines = ['{"text": "great"}', long, '{"text": "awful"}', '{"text": "superb"}', long]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    scored = score_files(bundle, tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    made = (tmp_path / "b.jsonl").read_text().splitlines()
    assert [line for line in made if LABEL not in line] == [long, long] and len(made) == 5
    assert scored.facts()["ledger"] == {"read": 5, "scored": 3, "empty": 0, "rejected": 2}


@given(
    st.lists(st.tuples(st.binary(max_size=6), st.booleans(), st.integers(-1, 2), st.floats(0, 1, width=32))),
    st.booleans(),
)
def test_what_is_inserted(rows: list[tuple[bytes, bool, int, float]], header: bool) -> None:
    words = Wording(b"<h>", [b"<a>", b"", b"<long>"], b"!", b"<none>")
    raw, ends, wanted = b"head" if header else b"", [], b"head<h>" if header else b""
    for data, takes, label, probability in rows:
        raw += data
        ends.append(len(raw) if takes else -1)
        number = f"{np.floor(np.float64(np.float32(probability)) * 1e6 + 0.5) / 1e6:.6f}"
        more = words.none if label == NONE else words.labels[label] + number.encode() + words.close
        wanted += data + (more if takes else b"") + b"\n"
        raw += b"\n"
    records = Records(
        "a",
        np.zeros(len(rows), np.int64),
        from_strings([]),
        raw=np.frombuffer(raw, np.uint8),
        ends=np.array(ends, np.int64),
        header_end=4 if header else None,
    )
    labels = np.array([row[2] for row in rows], np.int64)
    made = Inserter.of(words)(records, labels, np.array([row[3] for row in rows], np.float32))
    assert made.tobytes() == wanted


def folder_of(path: Path, files: int, rows: int = 40) -> Path:
    path.mkdir()
    for number in range(files):
        lines = (
            json.dumps({"id": f"{number}-{k}", "text": t}) for k, t in enumerate(texts(rows, seed=number)[0])
        )
        (path / f"{number:02d}.jsonl").write_text("\n".join(lines) + "\n")
    return path


def ids(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            assert row[LABEL]
            yield row["id"]


def test_a_folder_is_committed_by_its_manifest(bundle: Bundle, tmp_path: Path) -> None:
    raw = folder_of(tmp_path / "raw", 5)
    (raw / "deep").mkdir()
    (raw / "04.jsonl").rename(raw / "deep" / "04.jsonl")
    scored = score_files(bundle, raw, tmp_path / "out", threads=2)
    assert sorted(ids(tmp_path / "out")) == sorted(f"{n}-{k}" for n in range(5) for k in range(40))
    names = sorted(
        p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file()
    )
    assert names == [*(f"0{n}.jsonl" for n in range(4)), "_manifest.json", "deep/04.jsonl"]
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert manifest["ledger"] == {"read": 200, "scored": 200, "empty": 0, "rejected": 0}
    assert [part["ledger"]["read"] for part in manifest["parts"]] == [40] * 5
    assert scored.resumed == 0
    before = (tmp_path / "out" / "_manifest.json").stat().st_mtime_ns
    again = score_files(bundle, raw, tmp_path / "out")
    assert again.resumed == 5 and again.ledger.read == 200
    assert (tmp_path / "out" / "_manifest.json").stat().st_mtime_ns == before


def test_what_has_changed_is_noticed(bundle: Bundle, folder: Path, tmp_path: Path) -> None:
    raw, out = folder_of(tmp_path / "raw", 3), tmp_path / "out"
    score_files(bundle, raw, out)
    other = tmp_path / "other"
    manyhands.train(folder / "train.txt", other, model="fasttext", epochs=1)
    with pytest.raises(UsageError, match=r"another|model ngrams, not fasttext"):
        score_files(manyhands.load_bundle(other), raw, out)
    (raw / "01.jsonl").write_text('{"id": "new", "text": "great"}\n')
    with pytest.raises(UsageError, match=r"01\.jsonl changed since"):
        score_files(bundle, raw, out)
    scored = score_files(bundle, raw, out, overwrite=True)
    assert scored.ledger.read == 81 and scored.resumed == 0
    (raw / "03.jsonl").write_text('{"id": "more", "text": "great"}\n')
    with pytest.raises(UsageError, match=r"03\.jsonl is new"):
        score_files(bundle, raw, out)


def test_an_error_leaves_what_is_done_and_nothing_else(bundle: Bundle, tmp_path: Path) -> None:
    raw, out = folder_of(tmp_path / "raw", 4), tmp_path / "out"
    (raw / "02.jsonl").write_bytes(gzip.compress(b'{"text": "great"}\n' * 5000)[:-20])
    with pytest.raises(InputError, match=r"02\.jsonl is cut short"):
        score_files(bundle, raw, out, threads=1)
    left = {path.name for path in out.rglob("*") if path.is_file()}
    assert "02.jsonl" not in left and "_manifest.json" not in left and not [n for n in left if "partial" in n]
    done = len([name for name in left if name.endswith(".jsonl")])
    (raw / "02.jsonl").write_text('{"id": "fixed", "text": "great"}\n')
    scored = score_files(bundle, raw, out)
    assert scored.resumed == done and scored.ledger.read == 121
    assert not (out / "_unfinished").exists()


def test_other_files_are_never_touched(bundle: Bundle, tmp_path: Path) -> None:
    raw, out = folder_of(tmp_path / "raw", 2), tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds other files, mine\.txt among them"):
        score_files(bundle, raw, out, overwrite=True)
    with pytest.raises(UsageError, match="holds other files"):
        score_files(bundle, raw, raw, overwrite=True)
    (tmp_path / "one.jsonl").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        score_files(bundle, raw / "00.jsonl", tmp_path / "one.jsonl")
    with pytest.raises(UsageError, match=r"several are read; name a folder"):
        score_files(bundle, raw, tmp_path / "one.jsonl", overwrite=True)
    with pytest.raises(UsageError, match=r"is not \.csv; call it \.jsonl"):
        score_files(bundle, raw / "00.jsonl", tmp_path / "one.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.jsonl", "out", "raw"]


def test_the_command(manyhands: Callable[..., Outcome], folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,stars\ngreat,5\nawful,1\n,3\n")
    done = manyhands("predict", folder / "bundle", "a.csv", "--out", "b.csv.gz", "--json", "--threads", 2)
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert facts["ledger"] == {"read": 3, "scored": 2, "empty": 1, "rejected": 0}
    assert facts["columns"] == [LABEL, PROBABILITY]
    made = gzip.decompress((tmp_path / "b.csv.gz").read_bytes()).decode()
    assert made.splitlines(keepends=True)[0] == f"text,stars,{LABEL},{PROBABILITY}\n"
    piped = manyhands("predict", folder / "bundle", "--out", "c.txt", stdin=b"great\nawful\n")
    assert piped.code == 0 and "2 rows of 1 files" in piped.out
    wrong = manyhands("predict", folder / "bundle", "a.csv", "--out", "d.csv", "--top", 2)
    assert wrong.code == 2 and "--top" in wrong.err
    plain = manyhands("predict", folder / "bundle", "a.csv", "--json")
    assert len(plain.out.splitlines()) == 3
