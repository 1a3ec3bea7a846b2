"""Vectors of texts: what is alike is near, in any company and in every format."""

import json
import random
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from manyhands import embed, train
from manyhands.errors import UsageError
from manyhands.evaluation.embed import TextVectors
from manyhands.formats.matrices import write_rows

TOPICS = {
    "sea": "ship wave harbour sailor storm anchor tide".split(),
    "kitchen": "oven butter spoon flour salt recipe dough".split(),
}
FILLERS = "the a of and to in it was on with".split()


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    """Mostly fillers, as all texts are; three words tell the topic."""
    draw, rows = random.Random(2), []
    for number in range(600):
        topic = list(TOPICS)[number % 2]
        words = draw.choices(FILLERS, k=9) + draw.sample(TOPICS[topic], 3)
        draw.shuffle(words)
        rows.append((topic, " ".join(words)))
    return rows


@pytest.fixture(scope="module")
def files(texts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embed")
    lines = [json.dumps({"label": topic, "text": text}) for topic, text in texts]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    plain = {"deterministic": True, "threads": 1}
    train(
        folder / "rows.jsonl", folder / "skipgram", model="skipgram", dim=16, epochs=8, min_count=1, **plain
    )
    train(folder / "rows.jsonl", folder / "fasttext", model="fasttext", dim=8, epochs=5, min_count=1, **plain)
    small = {"dim": 8, "hidden_size": 8, "epochs": 3}
    train(folder / "rows.jsonl", folder / "lstm", model="lstm", **small, **plain)
    return folder


@pytest.mark.parametrize("model", ["skipgram", "fasttext", "lstm"])
def test_the_nearest_text_is_about_the_same(model: str, texts, files: Path) -> None:
    vectors = np.concatenate(list(embed(files / model, files / "rows.jsonl")))
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -2)
    topics = np.array([topic for topic, _ in texts])
    assert (topics[cosines.argmax(axis=1)] == topics).mean() > 0.95


def test_a_text_has_the_same_vector_in_any_company(texts, files: Path, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text(texts[7][1] + "\n\nzzz qqq\n")
    alone = np.concatenate(list(embed(files / "skipgram", tmp_path / "one.txt", format="text")))
    among = np.concatenate(list(embed(files / "skipgram", files / "rows.jsonl")))
    assert np.allclose(alone[0], among[7], atol=1e-6)
    assert not alone[1:].any()  # an empty text, and one of which no word is known


def test_files_of_vectors_without_counts_have_ranks(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("the 1 1\nship 1 0\noven 0 1\n")
    (tmp_path / "texts.txt").write_text("the ship\nship\nthe oven\n")
    ship, only, oven = np.concatenate(
        list(embed(tmp_path / "vectors.txt", tmp_path / "texts.txt", format="text"))
    )
    assert ship @ only > 0.9 > 0 > ship @ oven


def test_every_format_holds_the_same(tmp_path: Path, manyhands, files: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    for ending in ("npy", "parquet", "csv"):
        assert write_rows(iter([rows[:2], rows[2:]]), str(tmp_path / f"out.{ending}")) == 5
    assert np.array_equal(np.load(tmp_path / "out.npy"), rows)
    listed = pyarrow.parquet.read_table(tmp_path / "out.parquet")["vector"].to_pylist()
    assert np.array_equal(np.array(listed, np.float32), rows)
    table = pyarrow.csv.read_csv(tmp_path / "out.csv")
    assert np.allclose(np.column_stack([column.to_numpy() for column in table.columns]), rows, atol=1e-6)


def test_the_command_line(tmp_path: Path, manyhands, files: Path) -> None:
    done = manyhands("embed", files / "skipgram", files / "rows.jsonl", "--out", tmp_path / "v.npy")
    assert done.code == 0 and "vectors of 600 texts" in done.out
    assert np.load(tmp_path / "v.npy").shape == (600, 16)
    for arguments, said in (
        (["--out", tmp_path / "v.npy"], "exists already"),
        (["--out", tmp_path / "v.txt"], "must end in .npy, .parquet, .csv"),
    ):
        refused = manyhands("embed", files / "skipgram", files / "rows.jsonl", *arguments)
        assert refused.code == 2 and said in refused.err


def test_models_without_vectors_say_so(texts, tmp_path: Path, files: Path) -> None:
    trained = train(files / "rows.jsonl", tmp_path / "ngrams", effort=0)
    with pytest.raises(UsageError, match="ngrams models have no word vectors"):
        TextVectors(trained.bundle)
