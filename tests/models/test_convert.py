"""What other tools read from a converted bundle beside what the bundle itself says."""

import csv
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import typer
from safetensors import safe_open
from safetensors.numpy import load_file
from typer.testing import CliRunner

from manyhands.bundle.bundle import Bundle, open_bundle
from manyhands.bundle.convert import convert, onnx_inputs
from manyhands.cli import convert as verb
from manyhands.errors import MissingPartError, UsageError
from manyhands.formats import onnx as onnx_format
from manyhands.models.ngram.features import Featuriser
from manyhands.run.train import train
from manyhands.text.corpus import corpus_of
from manyhands.text.ragged import from_strings

WORDS = {"bad": "awful cold rude slow", "good": "great fresh warm quick", "odd": "strange weird new green"}
TEXTS = [
    "great fresh food, great place",
    "rude and slow and awful",
    "strange",
    "never seen words only: zzyzx qwop",
    "",
    "great " * 300,
]


def trained(folder: Path, labels: int, **settings: object) -> Bundle:
    """A small model; every word and pair tells something, the rare ones as well."""
    draw = np.random.default_rng(5)
    lines = []
    for n in range(240):
        label = list(WORDS)[n % labels]
        words = draw.choice([*WORDS[label].split(), "food", "place", "the", f"dish{n % 50}"], 8)
        lines.append(f"__label__{label} {' '.join(words)}\n")
    raw = folder / "raw.txt"
    raw.write_text("".join(lines))
    train(raw, folder / "run", deterministic=True, threads=1, **settings)
    return open_bundle(folder / "run")


def by_onnx(path: Path, bundle: Bundle, texts: list[str]) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.array([session.run(["probabilities"], fed)[0] for fed in onnx_inputs(bundle, texts)])


@pytest.mark.parametrize("model", ["ngrams", "fasttext"])
def test_onnx_from_raw_reviews(model: str, tmp_path: Path, real_data: Path) -> None:
    """The lines of the how-to: 1,000 real reviews as they are, to 1e-5."""
    with pa.CompressedInputStream(
        pa.OSFile(str(real_data / "reviews/imdb_polarity/test.csv.zst")), "zstd"
    ) as raw:
        rows = list(csv.reader(io.StringIO(raw.read(2_500_000).decode("utf-8", "replace"))))[:1500]
    (tmp_path / "raw.csv").write_text(
        "".join(f'"{a}","{b.replace(chr(34), chr(34) * 2)}"\n' for a, b in rows)
    )
    train(tmp_path / "raw.csv", tmp_path / "run", model=model, epochs=1, format="yelp")
    bundle = open_bundle(tmp_path / "run")
    convert(bundle, "onnx", str(tmp_path / "model.onnx"))
    texts = [text for _, text in rows[:1000]]
    found = by_onnx(tmp_path / "model.onnx", bundle, texts)
    assert np.abs(found - bundle.scores(from_strings(texts))).max() < 1e-5


@pytest.mark.parametrize("loss", ["softmax", "one-vs-all"])
@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("model", ["ngrams", "fasttext"])
def test_onnx_gives_the_same_probabilities(model: str, labels: int, loss: str, tmp_path: Path) -> None:
    bundle = trained(tmp_path, labels, model=model, loss=loss)
    out = tmp_path / "model.onnx"
    assert convert(bundle, "onnx", str(out)) == [str(out)]
    expected = bundle.scores(from_strings(TEXTS))
    assert np.ptp(expected[:, 0]) > 0.3, "a model that tells nothing would prove nothing"
    found = by_onnx(out, bundle, TEXTS)
    assert found.shape == (len(TEXTS), labels) and np.abs(found - expected).max() < 1e-5


def test_onnx_of_many_labels_learnt_by_negatives(tmp_path: Path) -> None:
    bundle = trained(tmp_path, 3, model="fasttext", loss="negative", dim=24, char_ngrams="2-4")
    convert(bundle, "onnx", str(tmp_path / "model.onnx"))
    found = by_onnx(tmp_path / "model.onnx", bundle, TEXTS)
    assert np.abs(found - bundle.scores(from_strings(TEXTS))).max() < 1e-5


@pytest.mark.parametrize(
    ("cell", "both", "layers", "pooling"),
    [
        ("lstm", False, 1, "max"),
        ("lstm", True, 2, "last"),
        ("gru", True, 1, "mean"),
        ("gru", False, 2, "last"),
        ("equations", True, 1, "max"),
    ],
)
def test_onnx_of_recurrent_networks(cell: str, both: bool, layers: int, pooling: str, tmp_path: Path) -> None:
    shape = {"cell": cell, "bidirectional": both, "layers": layers, "pooling": pooling, "max_length": 200}
    small = {"dim": 7, "hidden_size": 16, "epochs": 3, "learning_rate": 0.02}
    bundle = trained(tmp_path, 3, model="lstm", **shape, **small)
    convert(bundle, "onnx", str(tmp_path / "model.onnx"))
    expected = bundle.scores(from_strings(TEXTS))
    assert np.ptp(expected[:, 0]) > 0.2, "a model that tells nothing would prove nothing"
    assert np.abs(by_onnx(tmp_path / "model.onnx", bundle, TEXTS) - expected).max() < 1e-4


def test_onnx_of_a_network_of_numbers_is_refused(tmp_path: Path) -> None:
    rows = [f"{n % 2}.{n % 7},{n % 3}.5,{'ab'[n % 2]}\n" for n in range(80)]
    (tmp_path / "numbers.csv").write_text("x,y,label\n" + "".join(rows))
    train(tmp_path / "numbers.csv", tmp_path / "run", model="lstm", hidden_size=4, epochs=1)
    with pytest.raises(UsageError, match="reads rows of numbers, and onnx is for texts"):
        convert(open_bundle(tmp_path / "run"), "onnx", str(tmp_path / "model.onnx"))


def test_onnx_of_a_model_without_features(tmp_path: Path) -> None:
    bundle = trained(tmp_path, 2, min_count=255, ngrams=1)
    empty = replace(bundle, model=_without_features(bundle))
    convert(empty, "onnx", str(tmp_path / "model.onnx"))
    found = by_onnx(tmp_path / "model.onnx", empty, ["great"])
    assert found == pytest.approx(empty.scores(from_strings(["great"])), abs=1e-5)


def _without_features(bundle: Bundle) -> object:
    arrays = bundle.model.arrays()
    arrays["feature_bits"] = np.zeros_like(arrays["feature_bits"])
    arrays["feature_numbers"] = arrays["feature_numbers"][:0]
    arrays["table"] = arrays["table"][:0]
    return type(bundle.model).from_parts({**bundle.config.facts, "labels": bundle.labels}, arrays)


def test_onnx_says_what_its_numbers_mean(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs onnx")
    bundle = trained(tmp_path, 3)
    convert(bundle, "onnx", str(tmp_path / "model.onnx"))
    proto = onnx.load(tmp_path / "model.onnx")
    facts = {entry.key: entry.value for entry in proto.metadata_props}
    assert json.loads(facts["labels"]) == bundle.labels and facts["model"] == "ngrams"
    assert json.loads(facts["facts"])["features"]["ngrams"] == 3
    assert [value.name for value in proto.graph.input] == ["ids"], "ngrams does not ask how often"


def test_onnx_that_is_missing_or_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = trained(tmp_path, 2)
    with monkeypatch.context() as patch:
        patch.setattr(onnx_format, "LARGEST_BYTES", 1000)
        with pytest.raises(UsageError, match="holds 2 GB; convert to safetensors"):
            convert(bundle, "onnx", str(tmp_path / "model.onnx"))
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPartError, match=r"manyhands\[onnx\]"):
        convert(bundle, "onnx", str(tmp_path / "model.onnx"))
    assert not (tmp_path / "model.onnx").exists()


@pytest.mark.parametrize("chars", ["0-0", "3-4"])
def test_vec(chars: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = trained(tmp_path, 3, model="fasttext", dim=7, min_count=20, char_ngrams=chars)
    monkeypatch.setattr("manyhands.formats.vector_writing.NUMBERS_AT_ONCE", 7 * 5)  # several pieces
    convert(bundle, "vec", str(tmp_path / "words.vec"))
    head, *lines = (tmp_path / "words.vec").read_text("utf-8").splitlines()
    found = {line.split(" ")[0]: [float(number) for number in line.split(" ")[1:]] for line in lines}
    assert head == f"{len(found)} 7" and len(lines) == len(found)
    words = bundle.vocabulary.words.to_pylist()
    assert list(found) == [word for word in words if word in found], "the most frequent first"
    assert "great" in found and ("dish7" in found) == (chars != "0-0"), "rare words only by their letters"
    expected = bundle.model.sentence_vectors(corpus_of(from_strings(list(found))))
    assert np.array_equal(np.array(list(found.values()), np.float32), expected), "not a digit is lost"
    if chars == "0-0":
        great = corpus_of(from_strings(["great"]))
        row = Featuriser(bundle.model.space, great, distinct=True).of(np.arange(1)).ids
        assert np.array_equal(np.float32(found["great"]), bundle.model.vectors[row[0]])


def test_vec_leaves_out_what_its_format_cannot_hold(tmp_path: Path) -> None:
    bundle = trained(tmp_path, 2, model="fasttext", dim=3)
    words = pa.array(["great", "gr eat", "", "food"], pa.large_string())
    bundle.__dict__["vocabulary"] = replace(bundle.vocabulary, words=words, counts=np.ones(4, np.int64))
    convert(bundle, "vec", str(tmp_path / "words.vec"))
    lines = (tmp_path / "words.vec").read_text().splitlines()
    assert lines[0] == "2 3" and [line.split(" ")[0] for line in lines[1:]] == ["great", "food"]


@pytest.mark.parametrize("model", ["ngrams", "fasttext"])
def test_safetensors(model: str, tmp_path: Path) -> None:
    bundle = trained(tmp_path, 3, model=model)
    out = tmp_path / "model.safetensors"
    convert(bundle, "safetensors", str(out))
    arrays = load_file(out)
    assert set(arrays) == set(bundle.model.arrays())
    for name, array in bundle.model.arrays().items():
        assert arrays[name].dtype == array.dtype and np.array_equal(arrays[name], array)
    with safe_open(out, "numpy") as file:
        config = type(bundle.config).model_validate_json(file.metadata()["config"])
    assert config == bundle.config
    again = type(bundle.model).from_parts({**config.facts, "labels": config.labels}, arrays)
    assert np.array_equal(
        Bundle(config, again).scores(from_strings(TEXTS)), bundle.scores(from_strings(TEXTS))
    )


def test_mistakes(tmp_path: Path) -> None:
    bundle = trained(tmp_path, 2)
    out = tmp_path / "there"
    with pytest.raises(UsageError, match=r"no format 'onx' to convert to; there are: onnx, vec, safetensors"):
        convert(bundle, "onx", str(out))
    with pytest.raises(
        UsageError,
        match="ngrams models have no word vectors; train one with --model fasttext, skipgram or charlstm",
    ):
        convert(bundle, "vec", str(out))
    imported = Bundle(
        bundle.config.model_copy(update={"model": "imported"}), SimpleNamespace(can=frozenset())
    )
    with pytest.raises(
        UsageError, match="imported models cannot be converted to onnx; train one with --model ngrams"
    ):
        convert(imported, "onnx", str(out))
    with pytest.raises(UsageError, match="imported models have no word vectors; train one with --model"):
        convert(imported, "vec", str(out))
    out.write_text("mine")
    with pytest.raises(UsageError, match="exists already; choose another --out, or pass --overwrite"):
        convert(bundle, "safetensors", str(out))
    assert out.read_text() == "mine"
    convert(bundle, "safetensors", str(out), overwrite=True)
    assert "table" in load_file(out)


def test_the_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx", reason="needs onnx")
    trained(tmp_path, 2)
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(verb.convert)
    shown = CliRunner().invoke(app, ["run/", "--to", "onnx"])
    assert shown.exit_code == 0 and shown.stdout == "run.onnx\n" and (tmp_path / "run.onnx").stat().st_size
    assert isinstance(CliRunner().invoke(app, ["run", "--to", "onnx"]).exception, UsageError)
    assert CliRunner().invoke(app, ["run", "--to", "onnx", "--overwrite"]).exit_code == 0
