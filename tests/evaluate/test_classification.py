"""Measures of classification beside numbers worked out by hand and beside a brute-force count."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from manyhands.errors import InputError, UsageError
from manyhands.evaluation.classification import Report, evaluate_multi_label, evaluate_single_label, rates

pytestmark = [  # scikit-learn must find nothing to warn about; what other tests left open is not its affair
    pytest.mark.filterwarnings("error::UserWarning"),
    pytest.mark.filterwarnings("error::RuntimeWarning"),
]


def single(scores: list[list[float]], truth: list[int], **options) -> Report:
    names = [f"label {n}" for n in range(len(scores[0]) if scores else 2)]
    return evaluate_single_label(np.array(scores, np.float32), np.array(truth, np.int32), names, **options)


def multi_label(scores: list[list[float]], truth: list[list[int]], **options) -> Report:
    names = [f"label {n}" for n in range(len(scores[0]))]
    offsets = np.cumsum([0, *map(len, truth)], dtype=np.int64)
    flat = np.array([label for labels in truth for label in labels], np.int32)
    return evaluate_multi_label(np.array(scores, np.float32), flat, offsets, names, **options)


# Predicted: 0, 0, 1, 2, 0. Label 3 occurs nowhere.
SCORES = [
    [0.5, 0.25, 0.25, 0.0],
    [0.5, 0.25, 0.125, 0.125],
    [0.25, 0.5, 0.25, 0.0],
    [0.0, 0.25, 0.75, 0.0],
    [0.5, 0.0, 0.5, 0.0],
]


def test_single_by_hand() -> None:
    report = single(SCORES, [0, 1, 1, 2, 2], top=(1, 2, 9))
    assert report.rows == 5 and report.accuracy == 0.6 and report.micro_f1 == pytest.approx(0.6)
    assert report.labels["label 0"] == pytest.approx({"precision": 1 / 3, "recall": 1, "f1": 0.5, "rows": 1})
    assert report.labels["label 1"] == pytest.approx({"precision": 1, "recall": 0.5, "f1": 2 / 3, "rows": 2})
    assert report.labels["label 2"] == pytest.approx({"precision": 1, "recall": 0.5, "f1": 2 / 3, "rows": 2})
    assert report.labels["label 3"] == {"precision": 0, "recall": 0, "f1": 0, "rows": 0}
    assert report.macro_f1 == pytest.approx((1 / 2 + 2 / 3 + 2 / 3) / 3), "label 3 takes no part"
    assert report.confusion == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]
    assert report.log_loss == pytest.approx(-math.log(0.5 * 0.25 * 0.5 * 0.75 * 0.5) / 5)
    assert report.at["1"] == pytest.approx({"precision": 0.6, "recall": 0.6})
    assert report.at["2"] == pytest.approx({"precision": 0.5, "recall": 1.0})
    assert report.at["4"] == pytest.approx({"precision": 0.25, "recall": 1.0}), "9 is capped to 4 labels"
    assert list(report.at) == ["1", "2", "4"] and report.threshold is None


def test_weights_change_rates_and_not_counts() -> None:
    report = single([[0.75, 0.25], [0.75, 0.25], [0.25, 0.75]], [0, 1, 1], weights=np.array([1.0, 2.0, 5.0]))
    assert report.accuracy == 0.75 and report.at["1"]["precision"] == 0.75
    assert report.labels["label 1"] == pytest.approx(
        {"precision": 1, "recall": 5 / 7, "f1": 10 / 12, "rows": 2}
    )
    assert report.confusion == [[1, 0], [1, 1]]
    assert report.log_loss == pytest.approx(-(6 * math.log(0.75) + 2 * math.log(0.25)) / 8)


def test_unknown_labels_are_wrong() -> None:
    report = single([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], [0, -1, -1, 1])
    assert report.unknown_labels == 2 and report.rows == 4
    assert report.accuracy == report.micro_f1 == 0.5 and report.at["1"] == {"precision": 0.5, "recall": 0.5}
    assert report.labels["label 0"]["precision"] == pytest.approx(1 / 3), "an unknown row is no label 0"
    assert report.macro_f1 == pytest.approx((0.5 + 1) / 2)
    assert report.confusion == [[1, 0], [0, 1]] and report.log_loss == pytest.approx(0, abs=1e-9)


def test_nothing_but_unknown_labels() -> None:
    report = single([[1.0, 0.0]], [-1])
    assert report.accuracy == report.macro_f1 == report.micro_f1 == 0 and report.log_loss is None
    assert report.confusion == [[0, 0], [0, 0]] and report.unknown_labels == 1


def test_a_model_with_one_label() -> None:
    report = single([[1.0], [1.0]], [0, 0])
    assert report.accuracy == report.macro_f1 == 1 and report.log_loss == pytest.approx(0, abs=1e-9)
    assert multi_label([[0.9], [0.1]], [[0], []]).accuracy == 1


def test_no_log_loss_without_probabilities() -> None:
    assert single([[3.0, -1.0]], [0]).log_loss is None
    assert single([[0.9, 0.9]], [0]).log_loss is None
    assert multi_label([[3.0, -1.0]], [[0]]).log_loss is None


def test_a_probability_a_hair_above_one() -> None:
    over = np.nextafter(np.float32(1), np.float32(2)).item()
    assert single([[over, 0.0]], [0]).log_loss == pytest.approx(0, abs=1e-9)
    assert multi_label([[over, 0.0]], [[0]]).log_loss == pytest.approx(0, abs=1e-9)


def test_confusion_up_to_fifty_labels() -> None:
    fifty = single(np.eye(50).tolist(), list(range(50))).confusion
    assert fifty is not None and len(fifty) == 50
    assert single(np.eye(51).tolist(), list(range(51))).confusion is None


def test_several_by_hand() -> None:
    # Predicted: {0, 1}, {2}, {}, {0}; the last row has a label that the model does not know.
    scores = [[0.9, 0.5, 0.1], [0.2, 0.3, 0.7], [0.4, 0.3, 0.2], [0.8, 0.1, 0.1]]
    report = multi_label(scores, [[1, 0], [1, 2], [], [0, -1]])
    assert report.rows == 4 and report.unknown_labels == 1 and report.threshold == 0.5
    assert report.accuracy == 0.5, "the first, and the one with no labels"
    assert report.micro_f1 == pytest.approx(2 * 4 / (4 + 6)), "4 right, 4 predicted, 6 true"
    assert report.labels["label 1"] == pytest.approx({"precision": 1, "recall": 0.5, "f1": 2 / 3, "rows": 2})
    assert report.macro_f1 == pytest.approx((1 + 2 / 3 + 1) / 3)
    assert report.at["1"] == pytest.approx({"precision": 3 / 4, "recall": 3 / 6})
    assert report.at["3"] == pytest.approx({"precision": 5 / 12, "recall": 5 / 6})
    assert list(report.at) == ["1", "3"] and report.confusion is None


def test_threshold_decides() -> None:
    assert multi_label([[0.3, 0.2]], [[0, 1]], threshold=0.2).accuracy == 1
    assert multi_label([[0.3, 0.2]], [[0]], threshold=0.3).accuracy == 1
    nothing = multi_label([[0.3, 0.2]], [[]])
    assert nothing.accuracy == 1 and nothing.macro_f1 == 0 and nothing.at["1"]["recall"] == 0


def test_several_log_loss_is_scikit_learns_over_the_labels() -> None:
    scores = np.array([[0.9, 0.5, 0.0], [0.2, 0.3, 1.0], [0.4, 1.0, 0.25]])
    yes = np.array([[1, 0, 0], [0, 1, 1], [1, 0, 1]])
    truth = [np.flatnonzero(row).tolist() for row in yes]
    wanted = np.mean([log_loss(yes[:, n], scores[:, n], labels=[0, 1]) for n in range(3)])
    assert multi_label(scores.tolist(), truth).log_loss == pytest.approx(wanted, rel=1e-5)


def test_same_facts_after_json() -> None:
    for report in (single(SCORES, [0, 1, 1, 2, -1]), multi_label(SCORES, [[0], [], [1, 2], [3], [-1]])):
        facts = report.facts()
        assert json.loads(json.dumps(facts, allow_nan=False)) == facts
        names = (
            "rows accuracy macro_f1 micro_f1 log_loss labels confusion at unknown_labels threshold intervals "
            "left_out ece reliability answered against"
        )
        assert list(facts) == names.split()
        assert all(isinstance(figures["rows"], int) for figures in facts["labels"].values())


@pytest.mark.parametrize(
    ("scores", "truth", "options", "message"),
    [
        ([], [], {}, "no rows"),
        ([[math.nan, 1.0]], [0], {}, "not finite"),
        ([[math.inf, 1.0]], [0], {}, "not finite"),
        ([[0.5, 0.5]], [2], {}, "from -1 to 1"),
        ([[0.5, 0.5]], [0, 1], {}, "1 rows of scores but 2 true labels"),
        ([[0.5, 0.5]], [0], {"weights": np.array([-1.0])}, "not negative"),
        ([[0.5, 0.5]], [0], {"weights": np.ones(2)}, "but 2 weights"),
    ],
)
def test_what_cannot_be_measured(scores, truth, options, message: str) -> None:
    with pytest.raises(InputError, match=message):
        single(scores, truth, **options)


def test_several_that_cannot_be_measured() -> None:
    scores, names = np.full((2, 2), 0.5, np.float32), ["a", "b"]
    for offsets in ([0, 1], [0, 1, 1], [1, 1, 2], [0, 3, 2]):
        with pytest.raises(InputError, match="offsets"):
            evaluate_multi_label(scores, np.array([0, 1]), np.array(offsets), names)
    with pytest.raises(InputError, match="2 x 2 do not fit a model with 1 labels"):
        evaluate_multi_label(scores, np.array([0, 1]), np.array([0, 1, 2]), ["a"])
    with pytest.raises(InputError, match="no rows"):
        evaluate_multi_label(scores[:0], np.array([], np.int32), np.array([0]), names)
    with pytest.raises(UsageError, match="from 1 on"):
        multi_label([[0.5, 0.5]], [[0]], top=(0,))


GRID = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])  # so coarse that equal scores are common


@st.composite
def labelled(draw, most: int) -> tuple[list[list[float]], list[list[int]], list[float]]:
    labels, rows = draw(st.integers(1, 5)), draw(st.integers(1, 30))
    score_row = st.lists(GRID, min_size=labels, max_size=labels)
    truth = st.lists(st.integers(-1, labels - 1), min_size=most == 1, max_size=most, unique=True)
    weights = st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=rows, max_size=rows)
    return (
        draw(st.lists(score_row, min_size=rows, max_size=rows)),
        draw(st.lists(truth, min_size=rows, max_size=rows)),
        draw(weights),
    )


def share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def check(
    report: Report,
    scores: list[list[float]],
    true: list[set[int]],
    predicted: list[set[int]],
    weights: list[float],
) -> None:
    """Count everything again, one row and one label at a time."""
    labels = range(len(scores[0]))
    rows = list(zip(true, predicted, weights, strict=True))
    assert report.accuracy == pytest.approx(sum(w for t, p, w in rows if t == p) / sum(weights))
    right = sum(w * len(t & p) for t, p, w in rows)
    assert report.micro_f1 == pytest.approx(share(2 * right, sum(w * (len(t) + len(p)) for t, p, w in rows)))
    occurring = []
    for label in labels:
        found = sum(w for t, p, w in rows if label in t and label in p)
        in_truth = sum(w for t, _, w in rows if label in t)
        in_predicted = sum(w for _, p, w in rows if label in p)
        figures = report.labels[f"label {label}"]
        assert figures["precision"] == pytest.approx(share(found, in_predicted))
        assert figures["recall"] == pytest.approx(share(found, in_truth))
        assert figures["f1"] == pytest.approx(share(2 * found, in_truth + in_predicted))
        assert figures["rows"] == sum(label in t for t in true)
        if in_truth or in_predicted:
            occurring.append(figures["f1"])
    assert report.macro_f1 == pytest.approx(share(sum(occurring), len(occurring)))
    assert report.unknown_labels == sum(-1 in t for t in true)
    for k in map(int, report.at):
        first = [set(sorted(labels, key=lambda label, s=row: (-s[label], label))[:k]) for row in scores]
        hits = sum(w * len(t & f) for t, f, w in zip(true, first, weights, strict=True))
        assert report.at[str(k)]["precision"] == pytest.approx(hits / (k * sum(weights)))
        assert report.at[str(k)]["recall"] == pytest.approx(share(hits, sum(w * len(t) for t, _, w in rows)))


@given(labelled(most=1))
def test_single_beside_brute_force(case) -> None:
    scores, truth, weights = case
    report = single(scores, [t[0] for t in truth], weights=np.array(weights), top=(1, 2, 3))
    predicted = [{row.index(max(row))} for row in scores]
    check(report, scores, [set(t) for t in truth], predicted, weights)
    counted = [[0] * len(scores[0]) for _ in scores[0]]
    for (t,), (p,) in zip(truth, predicted, strict=True):
        if t >= 0:
            counted[t][p] += 1
    assert report.confusion == counted


@given(labelled(most=4))
def test_several_beside_brute_force(case) -> None:
    scores, truth, _ = case
    report = multi_label(scores, truth, threshold=0.75, top=(1, 2, 3))
    predicted = [{label for label, score in enumerate(row) if score >= 0.75} for row in scores]
    check(report, scores, [set(t) for t in truth], predicted, [1.0] * len(scores))


@pytest.mark.parametrize("seed", range(20))
def test_the_rates_of_training_are_those_of_scikit_learn(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    rows, labels = int(drawn.integers(1, 60)), int(drawn.integers(1, 6))
    scores = drawn.random((rows, labels))
    scores /= scores.sum(axis=1, keepdims=True)
    truth = drawn.integers(-1, labels, rows).tolist()
    weights = drawn.random(rows) + 0.1 if seed % 2 else None
    ours = single(scores.tolist(), truth, weights=weights, rating=rates)
    assert ours == single(scores.tolist(), truth, weights=weights)
    sets = [sorted(set(drawn.integers(0, labels, drawn.integers(0, 4)).tolist())) for _ in range(rows)]
    assert multi_label(scores.tolist(), sets, rating=rates) == multi_label(scores.tolist(), sets)
