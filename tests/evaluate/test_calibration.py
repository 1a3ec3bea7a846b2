"""Probabilities that held-out rows set right: known distortions are undone, and no label changes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pydantic import TypeAdapter, ValidationError

from manyhands.bundle.calibration import Calibration, Isotonic, Temperature
from manyhands.errors import UsageError
from manyhands.evaluation.calibration import calibration_for, reliability
from manyhands.text.corpus import corpus_of
from manyhands.text.labelled_rows import LabelledRows, Labels
from manyhands.text.ragged import from_strings


def rows_of(labels: Labels, weights=None) -> LabelledRows:
    count = len(labels)
    ones = np.ones(count, np.float32) if weights is None else weights.astype(np.float32)
    return LabelledRows(corpus_of(from_strings(["x"] * count)), labels, ones)


def single(truth, labels: int, weights=None) -> LabelledRows:
    return rows_of(Labels.single(truth.astype(np.int32), [str(k) for k in range(labels)]), weights)


def softmax(scores):
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def drawn(count: int, labels: int, seed: int = 0):
    """Scores, and a label for each row drawn by their softmax."""
    random = np.random.default_rng(seed)
    scores = random.normal(0, 2, (count, labels))
    truth = (softmax(scores).cumsum(axis=1) < random.random((count, 1))).sum(axis=1)
    return scores, np.minimum(truth, labels - 1)


def bent(scores):
    """The likeliest label is believed far too much, unless it is hardly believed at all: no temperature."""
    shares = softmax(scores)
    best = shares.argmax(axis=1)
    every = np.arange(len(shares))
    said = np.where(shares[every, best] > 0.7, 0.98 + 0.02 * shares[every, best] ** 3, shares[every, best])
    rest = (1 - said) / np.maximum(1 - shares[every, best], 1e-9)
    out = shares * rest[:, None]
    out[every, best] = said
    return out.astype(np.float32)


@pytest.mark.parametrize("labels", [2, 5])
@pytest.mark.parametrize("heat", [0.4, 3.0])
def test_a_temperature_is_found_again(labels, heat):
    scores, truth = drawn(4000, labels)
    found = calibration_for(
        softmax(scores * heat).astype(np.float32), single(truth, labels), method="temperature"
    )
    assert found.calibration.temperatures == [pytest.approx(heat, rel=0.1)]
    assert found.facts["ece_after"] < 0.03 < found.facts["ece_before"]


def test_what_is_right_already_stays():
    scores, truth = drawn(3000, 3, seed=1)
    found = calibration_for(softmax(scores).astype(np.float32), single(truth, 3))
    losses = found.facts["log_loss"]
    assert losses["temperature"] == pytest.approx(losses["none"], abs=1e-3)
    assert found.facts["method"] != "isotonic", "it would have to be better than by chance"


def test_a_curve_where_no_temperature_will_do():
    scores, truth = drawn(6000, 3)
    found = calibration_for(bent(scores), single(truth, 3))
    assert found.facts["method"] == "isotonic" and isinstance(found.calibration, Isotonic)
    more, answers = drawn(6000, 3, seed=2)
    after = found.calibration.apply(bent(more))
    best = after.argmax(axis=1)
    assert reliability(after.max(axis=1), best == answers)["ece"] < 0.03
    before = bent(more)
    assert reliability(before.max(axis=1), best == answers)["ece"] > 0.06
    assert (best == bent(more).argmax(axis=1)).all()


def test_few_rows_have_no_curve_and_fewer_nothing():
    scores, truth = drawn(400, 2)
    said = softmax(3 * scores).astype(np.float32)
    assert set(calibration_for(said, single(truth, 2)).facts["log_loss"]) == {"none", "temperature"}
    assert calibration_for(said[:40], single(truth[:40], 2)) is None
    assert calibration_for(said, single(truth, 2), method="none") is None


def test_rows_count_by_their_weights_and_unknown_labels_not_at_all():
    scores, truth = drawn(2000, 2)
    said = softmax(2 * scores).astype(np.float32)
    weights = np.ones(2000)
    truth[1000:1500] = 1 - truth[1000:1500]
    weights[1000:1500] = 0
    unknown = truth.copy()
    unknown[1500:] = -1
    found = calibration_for(said, single(unknown, 2, weights), method="temperature")
    few = calibration_for(said[:1000], single(truth[:1000], 2), method="temperature")
    assert found.calibration == few.calibration and found.facts["rows"] == 1000


def test_each_of_several_labels_has_its_own_temperature():
    random = np.random.default_rng(0)
    odds, heat = random.normal(0, 2, (4000, 3)), np.array([0.5, 1.0, 3.0])
    has = random.random((4000, 3)) < 1 / (1 + np.exp(-odds))
    has[:, 2] &= np.arange(4000) < 30  # too few for one of its own
    ids, offsets = np.nonzero(has)[1], np.append(0, has.sum(axis=1).cumsum())
    rows = rows_of(Labels(ids.astype(np.int32), offsets, ["a", "b", "c"], multi_label=True))
    said = (1 / (1 + np.exp(-odds * heat))).astype(np.float32)
    found = calibration_for(said, rows)
    assert found.calibration.link == "sigmoid" and len(found.calibration.temperatures) == 3
    assert found.calibration.temperatures[:2] == pytest.approx(heat[:2], rel=0.1)
    assert ((found.calibration.apply(said) >= 0.5) == (said >= 0.5)).all()
    with pytest.raises(UsageError, match="add up to 1"):
        calibration_for(said, rows, method="isotonic")


TEMPERATURES = st.floats(0.05, 20).map(lambda t: Temperature(link="softmax", temperatures=[t]))
SIGMOIDS = st.floats(0.05, 20).map(lambda t: Temperature(link="sigmoid", temperatures=[t]))
PLAIN = Temperature(link="softmax", temperatures=[1.0])
CURVES = st.lists(st.floats(0.01, 0.99), min_size=1, max_size=6, unique=True).map(
    lambda values: Isotonic(
        said=[0.0, *np.linspace(0.1, 0.9, len(values)).tolist(), 1.0],
        right=[0.0, *sorted(values), 1.0],
        first=PLAIN,
    )
)


@given(
    st.one_of(TEMPERATURES, SIGMOIDS, CURVES),
    arrays.arrays(np.float64, (6, 4), elements=st.floats(-60, 60)),
    st.integers(0, 3),
)
def test_no_label_changes_and_shares_stay_shares(calibration, scores, hair):
    said = softmax(scores).astype(np.float32)
    said[:, hair] = np.nextafter(said.max(axis=1), np.float32(2), dtype=np.float32)  # by a hair in front
    after = calibration.apply(said)
    assert (after.argmax(axis=1) == said.argmax(axis=1)).all()
    assert after.min() >= 0 and after.max() <= 1
    if getattr(calibration, "link", "softmax") == "softmax":
        assert np.allclose(after.sum(axis=1), 1, atol=1e-5)


def test_json_gives_the_same_back_and_what_is_damaged_is_refused():
    form = TypeAdapter(Calibration)
    curve = Isotonic(said=[0.0, 0.5, 1.0], right=[0.0, 0.3, 0.9], first=PLAIN)
    for one in (PLAIN, curve):
        assert form.validate_json(form.dump_json(one)) == one
    for damaged in (
        {"kind": "temperature", "link": "softmax", "temperatures": [0.0]},
        {"kind": "temperature", "link": "softmax", "temperatures": [1.0, 2.0]},
        {"kind": "temperature", "link": "sigmoid", "temperatures": [float("inf")]},
        curve.model_dump() | {"right": [0.0, 0.9, 0.3]},
        curve.model_dump() | {"said": [0.0, 1.0]},
        curve.model_dump() | {"right": [0.0, 0.5, 1.5]},
    ):
        with pytest.raises(ValidationError):
            form.validate_python(damaged)


def test_weights_count_in_the_error():
    said, right = np.array([0.9, 0.9, 0.6]), np.array([True, False, True])
    doubled = reliability(np.repeat(said, [2, 1, 3]), np.repeat(right, [2, 1, 3]))
    assert reliability(said, right, np.array([2.0, 1.0, 3.0]))["ece"] == doubled["ece"]


def test_rows_may_be_numbered_by_another_model():
    """Labels are told by name; one that the model lacks is left out."""
    scores, truth = drawn(500, 2)
    said = softmax(2 * scores).astype(np.float32)
    rows = single(truth, 2)
    turned = replace(rows, labels=Labels.single((1 - truth).astype(np.int32), ["1", "0"]))
    assert calibration_for(said, turned.with_names(["0", "1"])) == calibration_for(said, rows)


def test_rows_that_are_all_right_are_no_certainty():
    """As sure as a hundred right answers allow, and not as sure as a number can be."""
    said = np.tile(np.array([[0.7, 0.3], [0.3, 0.7]], np.float32), (50, 1))
    found = calibration_for(said, single(np.arange(100) % 2, 2)).calibration
    assert 0.97 < found.apply(said).max() < 0.999
