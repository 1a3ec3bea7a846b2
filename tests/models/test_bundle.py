"""Bundles: whole, checked, and never a crash, whatever has become of their files."""

import json
import os
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from manyhands.bundle.bundle import CONFIG, SUMS, TENSORS, load_bundle, open_bundle, write_bundle
from manyhands.bundle.explain import explain
from manyhands.bundle.quantize import quantize, quantize_bundle
from manyhands.errors import InputError, ManyhandsError, UsageError
from manyhands.evaluation.evaluate import judge
from manyhands.run.train import train
from manyhands.storage.tensors import read_tensors, write_tensors
from manyhands.text.ragged import from_strings
from tests.tasks import examples, texts, write_labelled

MUTATIONS = int(os.environ.get("MANYHANDS_BUNDLE_MUTATIONS", "600"))

TRAINED = {"ngrams": {}, "fasttext": {}, "lstm": {"hidden_size": 16, "dim": 8}}
SMALL = [f"{model}-small" for model in TRAINED]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bundles")
    data = write_labelled(folder / "train.txt", 800, 3)
    found = {}
    for model, settings in TRAINED.items():
        train(data, folder / model, model=model, **settings)
        small = quantize(open_bundle(folder / model), 100_000)
        write_bundle(small, folder / f"{model}-small", {})
        found |= {model: folder / model, f"{model}-small": folder / f"{model}-small"}
    return found


def test_what_a_bundle_holds(bundles):
    names = sorted(path.name for path in bundles["ngrams"].iterdir())
    assert names == [
        "README.md",
        "SHA256SUMS",
        "config.json",
        "model.safetensors",
        "record.json",
        "vocabulary.tsv",
    ]
    record = json.loads((bundles["ngrams"] / "record.json").read_text())
    assert record["data"]["rows"] == 800
    assert record["examples_seen"] == 3200
    assert record["scores"]["train"][-1]["loss"] < record["scores"]["train"][0]["loss"]


def test_predictions_are_those_of_the_scores(bundles):
    bundle = open_bundle(bundles["fasttext"])
    rows, truth = texts(50, 3, seed=4)
    found = bundle.predict(rows, top=2)
    scores = bundle.scores(from_strings(rows))
    assert [row[0][0] for row in found] == [bundle.labels[label] for label in scores.argmax(axis=1)]
    assert all(row[0][1] >= row[1][1] for row in found)
    assert np.mean([row[0][0] == str(label) for row, label in zip(found, truth, strict=True)]) > 0.95


def test_a_wrong_checksum_is_found(bundles, tmp_path):
    copy = shutil.copytree(bundles["ngrams"], tmp_path / "copy")
    with (copy / "vocabulary.tsv").open("a") as file:
        file.write("more\t1\n")
    with pytest.raises(InputError, match=r"vocabulary\.tsv .*wrong checksum"):
        open_bundle(copy).verify()


def test_a_folder_without_checksums_is_no_bundle(bundles, tmp_path):
    copy = shutil.copytree(bundles["ngrams"], tmp_path / "copy")
    (copy / SUMS).unlink()
    with pytest.raises(InputError, match="is not a complete bundle"):
        open_bundle(copy)


@pytest.mark.parametrize("name", [*TRAINED, *SMALL])
def test_mutated_bundles_give_errors_and_never_a_crash(bundles, tmp_path, name):
    copy = shutil.copytree(bundles[name], tmp_path / "copy")
    original = {file: (copy / file).read_bytes() for file in (TENSORS, CONFIG)}
    draw, rows, refused = random.Random(8), from_strings(texts(20, 3, seed=5)[0]), 0
    for _ in range(MUTATIONS // 5):
        file = draw.choice([TENSORS, CONFIG])
        (copy / file).write_bytes(mutated(original[file], draw))
        try:
            scores = open_bundle(copy).scores(rows)
            assert len(scores) == 20
        except ManyhandsError as error:
            refused += 1
            assert "\n" not in str(error)
        (copy / file).write_bytes(original[file])
    assert refused > MUTATIONS // 25


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Most damage goes to the head, where sizes and names stand."""
    out = bytearray(data)
    way = draw.randrange(4)
    at = draw.randrange(min(len(out), 600) if draw.random() < 0.7 else len(out))
    if way == 0:
        out[at] = draw.randrange(256)
    elif way == 1:
        del out[at:]
    elif way == 2:
        out[at:at] = draw.randbytes(draw.randint(1, 16))
    else:
        out[at : at + 8] = b"\xff" * 8 if draw.random() < 0.5 else b"9" * 8
    return bytes(out)


def test_a_small_bundle_is_nearly_as_good(bundles):
    rows = examples(1000, 3, seed=9)
    for model in TRAINED:
        full, small = (open_bundle(bundles[name]).model for name in (model, f"{model}-small"))
        names = full.labels
        judged = [judge(m, rows.with_names(["label 0", "label 1", "label 2"])) for m in (full, small)]
        assert names == ["0", "1", "2"]
        assert abs(judged[0].accuracy - judged[1].accuracy) < 0.005


def test_a_small_bundle_takes_no_more_than_was_asked_for(bundles, tmp_path):
    for model in TRAINED:
        write_bundle(quantize(open_bundle(bundles[model]), 30_000), tmp_path / model, {})
        assert sum(path.stat().st_size for path in (tmp_path / model).iterdir()) <= 30_000


def test_too_small_a_size_is_refused(bundles):
    for model in TRAINED:
        bundle = open_bundle(bundles[model])
        with pytest.raises(UsageError, match="--size is too small") as refused:
            quantize(bundle, 1000)
        least = int(re.search(r"at least ([\d,]+) bytes are needed", str(refused.value))[1].replace(",", ""))
        quantize(bundle, least)
        with pytest.raises(UsageError, match="--size is too small"):
            quantize(bundle, least - 1)
    for small in SMALL:
        with pytest.raises(UsageError, match="quantised already"):
            quantize(open_bundle(bundles[small]), 50_000)


@pytest.mark.parametrize("name", [*TRAINED, "lstm-small"])
@pytest.mark.parametrize("text", ["the food was great and lovely, great!", "", "zyzzyva", "broken " * 300])
def test_explanations_add_up_to_the_score(bundles, name, text):
    bundle = open_bundle(bundles[name])
    logits = []
    for label in bundle.labels:
        found = explain(bundle, text, label)
        assert sum(part.part for part in found.parts) + found.bias == pytest.approx(found.score, abs=1e-3)
        logits.append(found.score)
    values = np.exp(np.array(logits) - max(logits))
    shares, calibration = (values / values.sum()).astype(np.float32), bundle.config.calibration
    said = shares if calibration is None else calibration.apply(shares[None])[0]
    assert np.allclose(said, bundle.scores(from_strings([text]))[0], atol=1e-3)


def test_explanations_name_the_words(bundles):
    for model in TRAINED:
        found = explain(open_bundle(bundles[model]), "great food zyzzyva")
        assert found.label == "2"
        assert found.parts[0].ngram == "great"
        assert found.unknown == ["zyzzyva"]


def test_a_label_that_is_not_there(bundles):
    with pytest.raises(UsageError, match="no label 'nine'; it has: 0, 1, 2"):
        explain(open_bundle(bundles["ngrams"]), "x", "nine")


def test_arrays_are_mapped(bundles):
    arrays, _ = read_tensors(bundles["ngrams"] / TENSORS)
    assert not any(array.flags.owndata or array.flags.writeable for array in arrays.values())


def test_remote_bundles_are_fetched_and_checked(bundles, monkeypatch, tmp_path):
    import fsspec

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    memory = fsspec.filesystem("memory")
    memory.put(str(bundles["ngrams"]), "/far/model", recursive=True)
    here, far = open_bundle(bundles["ngrams"]), load_bundle("memory://far/model")
    rows = from_strings(texts(20, 3, seed=6)[0])
    assert np.array_equal(here.scores(rows), far.scores(rows))
    memory.rm("/far", recursive=True)


def test_one_label_with_one_column_is_refused(bundles, tmp_path):
    """The kernel writes two probabilities for one column."""
    copy = shutil.copytree(bundles["ngrams"], tmp_path / "copy")
    arrays = {name: np.array(array) for name, array in read_tensors(copy / TENSORS)[0].items()}
    arrays |= {"table": arrays["table"][:, :2].copy(), "bias": arrays["bias"][:1].copy()}
    write_tensors(copy / TENSORS, arrays)
    config = json.loads((copy / CONFIG).read_text())
    (copy / CONFIG).write_text(json.dumps({**config, "labels": ["only"]}))
    with pytest.raises(InputError, match="do not fit"):
        open_bundle(copy)


def test_a_small_bundle_can_be_written_again(bundles, tmp_path):
    small = open_bundle(bundles["ngrams-small"])
    write_bundle(small, tmp_path / "again", {})
    rows = from_strings(texts(20, 3, seed=7)[0])
    assert np.array_equal(open_bundle(tmp_path / "again").scores(rows), small.scores(rows))


def test_a_small_bundle_says_whose_scores_it_shows(bundles, tmp_path):
    quantize_bundle(bundles["ngrams"], tmp_path / "small", 60_000)
    assert "No scores were measured" in (tmp_path / "small" / "README.md").read_text()


def test_raw_files_give_the_same_model_with_any_threads(tmp_path):
    data = write_labelled(tmp_path / "train.txt", 60_000, 3)  # several pieces
    sums = []
    for threads in (1, 2, 3):
        train(data, tmp_path / str(threads), deterministic=True, threads=threads, epochs=1)
        sums.append((tmp_path / str(threads) / TENSORS).read_bytes())
    assert sums[0] == sums[1] == sums[2]


def test_what_shapes_a_model_cannot_change_when_it_is_continued(bundles, tmp_path):
    data = write_labelled(tmp_path / "more.txt", 100, 3)
    with pytest.raises(UsageError, match="has --ngrams 3, which cannot become 2; leave out --ngrams"):
        train(data, tmp_path / "x", continue_from=bundles["ngrams"], ngrams=2)
    with pytest.raises(UsageError, match="is a ngrams model, not fasttext"):
        train(data, tmp_path / "x", continue_from=bundles["ngrams"], model="fasttext")
    train(data, tmp_path / "x", continue_from=bundles["ngrams-small"])


def test_the_face_of_the_package(bundles, tmp_path):
    """The rooms ``train`` and ``evaluate`` do not hide the functions of that name."""
    import manyhands

    data = write_labelled(tmp_path / "train.txt", 300)
    for number in range(2):
        trained = manyhands.train(data, tmp_path / str(number))
        assert manyhands.evaluate(tmp_path / str(number), data).accuracy > 0.9
    assert manyhands.load_bundle(tmp_path / "0").labels == trained.bundle.labels
