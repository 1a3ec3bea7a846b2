"""Calibrated probabilities from training to every verb, what is unsure, and what epochs are judged by."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.tasks import examples, texts

from manyhands import TextClassifier, load_bundle, score_files
from manyhands.bundle.calibration import Isotonic, Temperature
from manyhands.bundle.convert import convert, onnx_inputs
from manyhands.bundle.explain import explain
from manyhands.bundle.quantize import quantize_bundle
from manyhands.data.prepare.prepare import prepare
from manyhands.errors import InputError, UsageError
from manyhands.evaluation.evaluate import evaluate
from manyhands.run.train import train
from manyhands.settings import TrainingSettings
from manyhands.text.ragged import from_strings
from manyhands.training.objective import with_class_weights

ASKED = ["great superb food", "awful and broken", "a room", "lovely day but cold"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reviews of which a fifth has a wrong label: whoever is sure of those is too sure."""
    made, draw = tmp_path_factory.mktemp("trust"), random.Random(0)
    rows, truth = texts(4000)
    noisy = [label if draw.random() < 0.8 else 1 - label for label in truth]
    lines = (
        f"__label__{'np'[label]} {row} {n}\n" for n, (row, label) in enumerate(zip(rows, noisy, strict=True))
    )
    (made / "raw.txt").write_text("".join(lines))
    prepare(str(made / "raw.txt"), made / "data", valid=0.3)
    for name, calibrate in (("run", "temperature"), ("plain", "none")):
        asked = {"effort": 0, "loss": "softmax", "deterministic": True, "early_stopping": 9, "epochs": 8}
        train(made / "data", made / name, calibrate=calibrate, **asked)
    return made


def test_training_calibrates_and_every_verb_says_the_same(folder, manyhands):
    bundle, plain = load_bundle(folder / "run"), load_bundle(folder / "plain")
    assert isinstance(bundle.config.calibration, Temperature) and plain.config.calibration is None
    record = json.loads((folder / "run/record.json").read_text())
    assert record["calibration"]["method"] == "temperature"
    assert record["calibration"]["ece_after"] < record["calibration"]["ece_before"]
    assert "calibration" not in json.loads((folder / "plain/record.json").read_text())
    scores = bundle.scores(from_strings(ASKED))
    assert np.allclose(scores, bundle.config.calibration.apply(plain.scores(from_strings(ASKED))), atol=1e-6)
    assert not np.allclose(scores, plain.scores(from_strings(ASKED)), atol=1e-3)
    assert (scores.argmax(1) == plain.scores(from_strings(ASKED)).argmax(1)).all()

    after, before = (evaluate(folder / name, folder / "data") for name in ("run", "plain"))
    assert after.accuracy == before.accuracy and after.log_loss < before.log_loss
    assert record["scores"]["test"]["ece"] == after.ece == record["evaluation"]["calibration"]["ece"]
    assert record["scores"]["test"]["intervals"]["accuracy"] == after.intervals["accuracy"]

    printed = manyhands("predict", folder / "run", stdin="\n".join(ASKED).encode()).out.splitlines()
    assert [float(line.split("\t")[1]) for line in printed] == pytest.approx(scores.max(1), abs=1e-4)
    loaded = TextClassifier.load(folder / "run")
    assert loaded.predict_proba(ASKED) == pytest.approx(scores, abs=1e-6)
    why = explain(bundle, ASKED[0])
    assert why.probability == pytest.approx(scores[0].max())
    assert why.score == pytest.approx(why.bias + sum(part.part for part in why.parts), abs=1e-5)
    small = quantize_bundle(folder / "run", folder / "small", 200_000, overwrite=True)
    assert small.config.calibration == bundle.config.calibration


@pytest.mark.parametrize("kind", ["temperature", "isotonic"])
def test_onnx_gives_calibrated_probabilities(folder, tmp_path, kind):
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    bundle = load_bundle(folder / "run")
    temperature = bundle.config.calibration
    if (
        kind == "isotonic"
    ):  # steep, flat, and so low in the middle that the likeliest label has to be kept in front
        curve = Isotonic(said=[0.0, 0.6, 0.7, 1.0], right=[0.0, 0.2, 0.75, 0.8], first=temperature)
        bundle = replace(bundle, config=bundle.config.model_copy(update={"calibration": curve}))
    convert(bundle, "onnx", str(tmp_path / "model.onnx"))
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    found = np.stack([session.run(None, given)[0] for given in onnx_inputs(bundle, ASKED)])
    assert np.abs(found - bundle.scores(from_strings(ASKED))).max() < 1e-5
    assert json.loads(session.get_modelmeta().custom_metadata_map["calibration"]) == kind


def test_bundles_of_old_open_and_damaged_ones_do_not(folder, tmp_path):
    config = json.loads((folder / "plain/config.json").read_text())
    del config["calibration"]
    for name, changed in (
        ("old", config),
        (
            "damaged",
            config | {"calibration": {"kind": "temperature", "link": "sigmoid", "temperatures": [1] * 3}},
        ),
        ("worse", config | {"calibration": {"kind": "magic"}}),
    ):
        (tmp_path / name).mkdir()
        for file in (folder / "plain").iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
        (tmp_path / name / "config.json").write_text(json.dumps(changed))
    old = load_bundle(tmp_path / "old").scores(from_strings(ASKED))
    assert (old == load_bundle(folder / "plain").scores(from_strings(ASKED))).all()
    with pytest.raises(InputError, match="does not fit its labels"):
        load_bundle(tmp_path / "damaged")
    with pytest.raises(InputError, match="calibration"):
        load_bundle(tmp_path / "worse")


def test_unsure_below_a_probability(folder, tmp_path, manyhands):
    best = load_bundle(folder / "run").scores(from_strings(ASKED)).max(1)
    least = float(np.sort(best)[1] + np.sort(best)[2]) / 2
    texts_in = "\n".join(ASKED).encode()
    shown = manyhands("predict", folder / "run", "--unsure", least, stdin=texts_in).out.splitlines()
    assert [line.startswith("unsure\t") for line in shown] == (best < least).tolist()
    rows = manyhands("predict", folder / "run", "--unsure", least, "--json", stdin=texts_in).out.splitlines()
    for line, likely in zip(map(json.loads, rows), best, strict=True):
        assert line["unsure"] == (likely < least) == (line["labels"] == [])
        assert line["best_score"] == pytest.approx(likely, abs=1e-5)
    (tmp_path / "a.csv").write_text(
        "id,text\n" + "".join(f"{n},{text}\n" for n, text in enumerate(ASKED)) + "9,\n"
    )
    score_files(load_bundle(folder / "run"), tmp_path / "a.csv", tmp_path / "b.csv", unsure=least)
    made = [line.split(",")[2] for line in (tmp_path / "b.csv").read_text().splitlines()[1:]]
    assert [label == "unsure" for label in made[:4]] == (best < least).tolist() and made[4] == ""
    wrong = manyhands("predict", folder / "run", "--unsure", 2, stdin=b"x")
    assert wrong.code == 2 and "--unsure must be a probability" in wrong.err


def test_evaluate_tells_thresholds_and_compares(folder, manyhands):
    done = manyhands(
        "evaluate",
        folder / "run",
        folder / "data",
        "--precision",
        0.75,
        "--against",
        folder / "plain",
        "--json",
    )
    assert done.code == 0, done.err
    found = json.loads(done.out)
    whole = found["answered"]["overall"]
    assert (
        whole["precision"] >= 0.75
        and 0 < whole["coverage"] <= 1
        and set(found["answered"]["labels"]) == {"n", "p"}
    )
    assert found["against"]["accuracy"]["difference"] == 0 and found["against"]["accuracy"]["p"] == 1
    low, high = found["intervals"]["macro_f1"]
    assert low < found["macro_f1"] < high
    shown = manyhands(
        "evaluate", folder / "run", folder / "data", "--precision", 0.75, "--against", folder / "plain"
    )
    assert "calibration error" in shown.out and "p = 1" in shown.out and "by these very rows" in shown.out
    wrong = manyhands("evaluate", folder / "run", folder / "data", "--precision", 3)
    assert wrong.code == 2 and "--precision must be" in wrong.err


@pytest.mark.parametrize("measure", ["log_loss", "macro_f1", "f1:p"])
def test_epochs_are_judged_by_what_was_asked(folder, tmp_path, measure):
    run = train(
        folder / "data", tmp_path / "run", judge_by=measure, early_stopping=9, epochs=4, calibrate="none"
    )
    epochs = [epoch[measure] for epoch in run.record["scores"]["valid"]]
    best = min(epochs) if measure == "log_loss" else max(epochs)
    assert run.record["scores"]["best_epoch"] == epochs.index(best) + 1 and min(epochs) > 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"judge_by": "f1:q"}, "no row has the label 'q'"),
        ({"judge_by": "f1"}, "choose auto, accuracy"),
        ({"class_weights": "p=3,x=1"}, "no row has the label 'x'"),
        ({"class_weights": "p=-1"}, "choose none, balanced or a weight"),
        ({"calibrate": "isotonic", "loss": "one-vs-all"}, "add up to 1"),
    ],
)
def test_wrong_settings_are_told_in_a_sentence(folder, tmp_path, settings, said):
    with pytest.raises(UsageError, match=said):
        train(folder / "data", tmp_path / "run", epochs=1, **settings)


def test_given_weights_of_classes():
    rows = examples(300, 3)
    weights = with_class_weights(rows, TrainingSettings(class_weights="label 2=4,label 0=0.5")).weights
    means = [weights[rows.labels.ids == k].mean() for k in range(3)]
    assert means[2] / means[1] == pytest.approx(4) and means[0] / means[1] == pytest.approx(0.5)
    assert weights.mean() == pytest.approx(1)


def test_raw_files_are_calibrated_by_rows_held_out_of_a_second_training(folder, tmp_path):
    run = train(folder / "raw.txt", tmp_path / "run", labels="as-is", deterministic=True)
    found = run.record["calibration"]
    assert found["rows"] == 4000 and found["ece_after"] < 0.08
    plain = train(
        folder / "raw.txt", tmp_path / "plain", labels="as-is", deterministic=True, calibrate="none"
    )
    assert "calibration" not in plain.record
    for name, array in plain.bundle.model.arrays().items():
        assert (array == run.bundle.model.arrays()[name]).all(), "the model has learnt all rows"


def test_rows_count_by_their_weights_in_evaluation(folder, tmp_path):
    lines = ["text,label,weight", "great superb,p,3", "lovely,n,1", "awful,n,2", "cold,n,2"]
    (tmp_path / "some.csv").write_text("\n".join(lines) + "\n")
    judged = evaluate(folder / "run", tmp_path / "some.csv", labels="as-is", weight_field="weight")
    plain = evaluate(folder / "run", tmp_path / "some.csv", labels="as-is")
    assert (judged.accuracy, plain.accuracy) == (pytest.approx(7 / 8), pytest.approx(3 / 4))
