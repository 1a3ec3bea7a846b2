"""Intervals hold the truth as often as they say, and equal models are rarely told apart."""

import numpy as np
import pytest
from scipy.stats import binomtest

from manyhands.evaluation.classification import evaluate_multi_label, evaluate_single_label, table
from manyhands.evaluation.intervals import compare_pairs, intervals, macro_f1, marks_of, mcnemar, micro_f1
from manyhands.evaluation.thresholds import thresholds_for

DRAWS = 2000
NAMES = ["a", "b", "c", "d"]


def said_of(random, true, right: float):
    """What a model says that is so often right."""
    wrong = (true + random.integers(1, 4, len(true))) % 4
    return np.where(random.random(len(true)) < right, true, wrong)


def marks(true, said, weights=None, labels: int = 4):
    offsets = np.arange(len(true) + 1)
    return marks_of(*(table(ids, offsets, labels) for ids in (true, said)), weights)


@pytest.mark.timeout(120)
def test_intervals_cover_as_they_say():
    random, shares, right, rows = np.random.default_rng(0), np.array([0.4, 0.3, 0.2, 0.1]), 0.85, 400
    cells = shares[:, None] * np.where(np.eye(4) > 0, right, (1 - right) / 3)
    f1 = 2 * np.diag(cells) / (cells.sum(axis=0) + cells.sum(axis=1))
    truth = {"accuracy": right, "macro_f1": f1.mean(), "micro_f1": right}
    held = dict.fromkeys([*truth, "d"], 0)
    for _ in range(DRAWS):
        true = random.choice(4, rows, p=shares)
        found = intervals(marks(true, said_of(random, true, right)), NAMES)
        for name, value in [*truth.items(), ("d", f1[3])]:
            low, high = found[name] if name in truth else found["labels"][name]
            held[name] += low <= value <= high
    for name, count in held.items():
        assert 100 * count / DRAWS == pytest.approx(95, abs=1.5), name


@pytest.mark.timeout(120)
def test_equal_models_are_told_apart_as_rarely_as_they_should_be():
    random, apart = np.random.default_rng(0), {"accuracy": 0, "macro_f1": 0}
    for _ in range(600):
        true = random.integers(0, 4, 300)
        first, second = (marks(true, said_of(random, true, 0.85)) for _ in range(2))
        for name, of in compare_pairs(first, second).items():
            apart[name] += of["p"] < 0.05
    assert 15 < apart["macro_f1"] < 45, "30 of 600 by chance"
    assert apart["accuracy"] < 45, "an exact test is on the safe side"


def test_estimates_are_the_scores_of_the_report():
    random = np.random.default_rng(1)
    true = random.integers(-1, 4, 300)
    scores = random.random((300, 4)).astype(np.float32)
    weights = random.random(300)
    report = evaluate_single_label(scores, true, NAMES, weights=weights)
    found = marks(true, scores.argmax(axis=1), weights)
    assert macro_f1(found).value == pytest.approx(report.macro_f1)
    assert micro_f1(found).value == pytest.approx(report.micro_f1)
    for name in ("accuracy", "macro_f1", "micro_f1"):
        low, high = report.intervals[name]
        assert low < getattr(report, name) < high
    assert sum(macro_f1(found).influence) == pytest.approx(0, abs=1e-9)


def test_weights_of_several_labels_are_as_rows_given_again():
    random = np.random.default_rng(2)
    scores = random.random((60, 3)).astype(np.float32)
    has = random.random((60, 3)) < 0.4
    times = random.integers(1, 4, 60)

    def judged(rows, **options):
        offsets = np.append(0, has[rows].sum(axis=1).cumsum())
        return evaluate_multi_label(
            scores[rows], np.nonzero(has[rows])[1], offsets, ["a", "b", "c"], **options
        )

    weighted = judged(np.arange(60), weights=times.astype(np.float32))
    again = judged(np.repeat(np.arange(60), times))
    for name in ("accuracy", "macro_f1", "micro_f1", "log_loss"):
        assert getattr(weighted, name) == pytest.approx(getattr(again, name))
    wide, narrow = (found.intervals["accuracy"] for found in (weighted, again))
    assert wide[1] - wide[0] > narrow[1] - narrow[0], "rows given again are no new rows"


def test_equal_weights_change_nothing():
    random = np.random.default_rng(3)
    true, said = random.integers(0, 4, (2, 200))
    plain, doubled = (intervals(marks(true, said, weights), NAMES) for weights in (None, np.full(200, 2.0)))
    assert plain["accuracy"] == pytest.approx(doubled["accuracy"])
    assert plain["macro_f1"] == pytest.approx(doubled["macro_f1"])


def test_a_better_model_is_told_apart_and_equal_ones_are_not():
    random = np.random.default_rng(4)
    true = random.integers(0, 4, 1000)
    good, bad = (marks(true, said_of(random, true, right)) for right in (0.9, 0.8))
    found = compare_pairs(good, bad)
    only = found["accuracy"]["only_first_right"], found["accuracy"]["only_second_right"]
    assert found["accuracy"]["p"] == pytest.approx(binomtest(only[0], sum(only)).pvalue)
    for of in found.values():
        assert of["interval"][0] > 0 and of["p"] < 1e-3
    same = compare_pairs(good, good)
    assert [of["p"] for of in same.values()] == [1.0, 1.0]
    weights = random.random(1000)
    assert mcnemar(good.same.astype(float) - bad.same, weights) < 0.01


def test_thresholds_reach_the_precision_with_the_most_rows():
    random = np.random.default_rng(5)
    said = random.uniform(0.5, 1, 5000).astype(np.float32)
    scores = np.stack([said, 1 - said], axis=1)
    truth = (random.random(5000) > said).astype(np.int32)
    found = thresholds_for(0.9, scores, truth, np.arange(5001), ["a", "b"])
    whole = found["overall"]
    answered = said >= whole["threshold"]
    assert answered.sum() == whole["rows"] and (truth[answered] == 0).mean() == whole["precision"] >= 0.9
    assert whole["coverage"] == pytest.approx(0.4, abs=0.1), "from 0.8 on, the mean is 0.9"
    more = said >= np.sort(said)[-whole["rows"] - 50]
    assert (truth[more] == 0).mean() < 0.9
    assert found["labels"] == {"a": whole, "b": None}


def test_thresholds_of_several_labels():
    scores = np.array([[0.9, 0.2], [0.8, 0.7], [0.3, 0.6]], np.float32)
    found = thresholds_for(
        1.0, scores, np.array([0, 0, 1]), np.array([0, 1, 2, 3]), ["a", "b"], multi_label=True
    )
    assert found["labels"]["a"]["threshold"] == pytest.approx(0.8) and found["labels"]["b"] is None
    assert found["overall"]["threshold"] == pytest.approx(0.8)
    assert found["overall"]["coverage"] == pytest.approx(2 / 3)
