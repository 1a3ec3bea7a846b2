"""``prepare`` on a real Spark: the same bytes as the local engine, however the work is cut."""

import gzip

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.clusters import messy, same
from tests.conftest import write_jsonl

import manyhands
from manyhands.data.prepare.spark import ranges
from manyhands.engines.spark import spark
from manyhands.errors import InputError, UsageError

pytest.importorskip("pyspark", reason="needs the extra spark")


@pytest.fixture(scope="module", autouse=True)
def session():
    with spark("local[2]", [], "tests") as session:
        yield session


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(ranges, "LEAST_BYTES", 4096)


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    """Several files: one that is cut into ranges, some small ones, one compressed, one empty."""
    folder = tmp_path_factory.mktemp("reviews")
    (folder / "large.json").write_text("\n".join(messy(3000, 1)))  # no line end at the end
    for n in range(3):
        (folder / f"small{n}.json").write_text("\n".join(messy(40, 2 + n)) + "\n")
    (folder / "packed.json.gz").write_bytes(gzip.compress("\n".join(messy(300, 9)).encode()))
    (folder / "nothing.json").write_text("")
    return folder


@pytest.fixture(scope="module")
def prepared(reviews, tmp_path_factory):
    return manyhands.prepare(reviews, tmp_path_factory.mktemp("local") / "data", max_rejected=0.05)


@pytest.mark.parametrize("partitions", [1, 7, 24])
def test_the_same_bytes_in_any_number_of_partitions(tmp_path, reviews, prepared, partitions):
    dataset = manyhands.prepare(
        reviews, tmp_path / "data", max_rejected=0.05, engine="spark", partitions=partitions
    )
    assert dataset.manifest.ledger.rejected > 60
    assert dataset.manifest.ledger.duplicates > 500
    same(prepared, dataset)


def lines(one: str, count: int) -> str:
    return "".join(one.replace("N", str(n)) + "\n" for n in range(count))


FORMATS = {
    "several labels": ("a.txt", "__label__x __label__y one two\n" * 3 + lines("__label__lN row N", 60), {}),
    "no labels": ("a.txt", lines("plain text number N of many", 400), {"valid": 0.01}),
    "quoted csv": (
        "a.csv",
        "text,label,weight\n" + lines('"a ""b""\nN",x,N', 300),
        {"weight_field": "weight", "labels": "as-is"},
    ),
    "duplicates kept": ("a.jsonl", '{"text": "same", "stars": 5}\n' * 40, {"deduplicate": False}),
    "few words": (
        "a.jsonl",
        lines('{"text": "often seen N", "stars": 4}', 300),
        {"vocabulary_size": 20, "min_count": 3, "labels": "stars"},
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_kind_of_input(tmp_path, name):
    file, text, settings = FORMATS[name]
    (tmp_path / file).write_text(text)
    local = manyhands.prepare(tmp_path / file, tmp_path / "local", **settings)
    same(
        local,
        manyhands.prepare(tmp_path / file, tmp_path / "spark", engine="spark", partitions=3, **settings),
    )


def test_files_for_a_split(tmp_path):
    rows = [(f"text number {n}", 1 + n % 5) for n in range(200)]
    train = write_jsonl(tmp_path / "train.jsonl", rows)
    test = write_jsonl(tmp_path / "test.jsonl", [*rows[150:], ("only here", 4)])
    table = pa.table({"text": ["a text", "text number 3"], "stars": [5, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "valid.parquet")
    settings = {"valid_files": [tmp_path / "valid.parquet"], "test_files": [test]}
    local = manyhands.prepare(train, tmp_path / "local", **settings)
    same(local, manyhands.prepare(train, tmp_path / "spark", engine="spark", partitions=5, **settings))


def test_labels_that_only_look_like_numbers_at_first(tmp_path):
    """Ties among labels go by number, or by name where one is none: the first file deceives."""
    (tmp_path / "a.txt").write_text(
        "__label__10 tied\n__label__9 tied\n__label__2 tied\n" + lines("__label__2 N", 20)
    )
    (tmp_path / "b.txt").write_text(lines("__label__x other N", 20))
    sources = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for files in (sources[:1], sources):
        local = manyhands.prepare(files, tmp_path / "local", overwrite=True)
        made = manyhands.prepare(files, tmp_path / "spark", engine="spark", partitions=3, overwrite=True)
        same(local, made)


def test_real_reviews(tmp_path, real_data):
    sources = sorted((real_data / "reviews").glob("*"))[:2]
    settings = {"max_rejected": 1.0}
    local = manyhands.prepare(sources, tmp_path / "local", **settings)
    for partitions in (2, 7):
        out = tmp_path / f"spark{partitions}"
        same(local, manyhands.prepare(sources, out, engine="spark", partitions=partitions, **settings))


def test_mistakes_are_those_of_the_local_engine(tmp_path, reviews):
    with pytest.raises(InputError, match=r"rows cannot be used.*large.json line 51: "):
        manyhands.prepare(reviews, tmp_path / "data", engine="spark")
    with pytest.raises(InputError, match="holds no rows at all"):
        manyhands.prepare(reviews / "nothing.json", tmp_path / "data", engine="spark")
    (tmp_path / "other.json").write_text('{"other": 1}\n')
    with pytest.raises(InputError, match=r"on an executor: .*no field looks like the text \(other\)"):
        manyhands.prepare([reviews, tmp_path / "other.json"], tmp_path / "data", engine="spark")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"master": "local[2]"}, "--master is not for the engine local; add --engine spark"),
        ({"engine": "sparc"}, "there is no engine 'sparc'; there are: local, spark"),
        ({"engine": "spark", "threads": 2}, "--threads is not for the engine spark"),
        ({"engine": "spark", "partitions": 5000}, "--partitions must be from 1 to 1024"),
    ],
)
def test_wrong_settings(tmp_path, reviews, settings, message):
    with pytest.raises(UsageError, match=message):
        manyhands.prepare(reviews, tmp_path / "data", **settings)


def test_standard_input_is_refused(tmp_path):
    with pytest.raises(UsageError, match="Spark cannot read standard input"):
        manyhands.prepare("-", tmp_path / "data", engine="spark")
