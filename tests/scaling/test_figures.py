"""Speed-up, efficiency and costs, computed by hand from made-up records; and their picture."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.report.scaling import Run, points_of, run_from, score_of
from manyhands.report.scaling_picture import draw_scaling


def record(
    rate: float, learning: float, *, bytes_sent: int = 0, waits=(0.0,), test: float | None = None
) -> dict:
    """What the figures need of a run's record."""
    scores = {"valid": [{"accuracy": 0.5}, {"accuracy": 0.6}], "best_epoch": 2}
    if test is not None:
        scores["test"] = {"rows": 10, "accuracy": test}
    laps = [{"rounds": 1, "seconds": {"wait": [wait / 2 for wait in waits]}, "shares": []} for _ in range(2)]
    return {
        "model": "lstm",
        "spread": "allreduce",
        "learning_seconds": learning,
        "rows_per_second": rate,
        "tokens_per_second": 10 * rate,
        "data": {"rows": 1000},
        "traffic": {"bytes": bytes_sent},
        "laps": laps,
        "scores": scores,
    }


def run(found: dict, workers: int, seconds: float = 1.0, number: int = 1, **more) -> Run:
    kinds = {"counts_words": False, "adds_up_bytes": False, **more}
    folder = f"workers-{workers}-run-{number}"
    return run_from(found, folder=folder, workers=workers, number=number, seconds=seconds, **kinds)


def test_figures_by_hand():
    points = points_of(
        [
            run(record(100.0, 10.0, test=0.90), 1, 12.0),
            run(record(150.0, 6.7, bytes_sent=500, waits=(0.0, 0.4), test=0.88), 2, 9.0),
            run(record(200.0, 5.0, bytes_sent=700, waits=(0.0, 1.0, 1.0, 2.0), test=0.91), 4, 8.0),
        ]
    )
    assert [point.workers for point in points] == [1, 2, 4]
    assert [point.seconds for point in points] == [12.0, 9.0, 8.0]
    assert [point.learning_seconds for point in points] == [10.0, 6.7, 5.0]
    assert [point.rate for point in points] == [100.0, 150.0, 200.0]
    assert [point.speedup for point in points] == [1.0, 1.5, 2.0]
    assert [point.efficiency for point in points] == [1.0, 0.75, 0.5]
    assert [point.bytes_per_worker for point in points] == [0, 500, 700]
    assert [point.wait_seconds for point in points] == [0.0, 0.2, 1.0]
    assert [point.score_difference for point in points] == pytest.approx([0.0, -0.02, 0.01])


def test_of_repeats_the_fastest_and_the_mean_score_count():
    slow, fast = record(80.0, 12.0, test=0.8), record(100.0, 10.0, test=0.9)
    twice = [run(slow, 2, 14.0), run(fast, 2, 11.0, number=2)]
    (first, second) = points_of([*twice, run(record(300.0, 3.0, test=0.95), 6)])
    assert (first.runs, first.seconds, first.rate) == (2, 11.0, 100.0)
    assert first.score == pytest.approx(0.85)
    assert (second.speedup, second.efficiency) == (3.0, 1.0), "2 workers are what 6 are compared with"
    assert second.score_difference == pytest.approx(0.1)


def test_words_and_traffic_are_counted_as_the_model_and_the_spread_do():
    found = run(record(100.0, 10.0, bytes_sent=900), 3, counts_words=True, adds_up_bytes=True)
    assert (found.rate, found.bytes_per_worker) == (1000.0, 300.0)


def test_the_score_is_of_test_rows_else_of_validation_rows_else_none():
    assert score_of(record(1.0, 1.0, test=0.9)["scores"]) == ("test accuracy", 0.9)
    assert score_of(record(1.0, 1.0)["scores"]) == ("validation accuracy", 0.6)
    assert score_of({"test": {"rows": 3, "log_likelihood": -2.5}}) == ("test log likelihood", -2.5)
    assert score_of({"train": [{"loss": 1.0}]}) == (None, None)
    unjudged = {**record(1.0, 1.0), "scores": {}}
    assert points_of([run(unjudged, 1)])[0].score_difference is None


RATES = st.dictionaries(st.integers(1, 64), st.floats(0.1, 1e9), min_size=1, max_size=6)


@given(RATES)
def test_efficiency_is_speedup_by_workers_and_the_first_is_one(rates):
    points = points_of([run(record(rate, 1.0), workers) for workers, rate in rates.items()])
    assert [point.workers for point in points] == sorted(rates)
    assert (points[0].speedup, points[0].efficiency) == (1.0, 1.0)
    for point in points:
        assert point.efficiency == pytest.approx(point.speedup / (point.workers / points[0].workers))


def test_the_picture_has_a_circle_for_each_run_in_both_charts():
    rates = [(1, 1, 100.0), (1, 2, 90.0), (2, 1, 150.0), (2, 2, 200.0), (4, 1, 300.0), (4, 2, 280.0)]
    runs = [run(record(rate, 1.0), workers, number=number) for workers, number, rate in rates]
    picture = draw_scaling("a < b", runs, points_of(runs))
    assert picture.startswith("<svg") and "a &lt; b" in picture
    circles = re.findall(r"<circle .*?<title>(\S+): (\S+) ([\d.]+)<", picture)
    assert [(name, value) for name, kind, value in circles if kind == "speed-up"] == [
        ("workers-1-run-1", "1.000"),
        ("workers-1-run-2", "0.900"),
        ("workers-2-run-1", "1.500"),
        ("workers-2-run-2", "2.000"),
        ("workers-4-run-1", "3.000"),
        ("workers-4-run-2", "2.800"),
    ]
    assert [value for _, kind, value in circles if kind == "efficiency"] == [
        *("1.000", "0.900", "0.750", "1.000", "0.750", "0.700"),
    ]
    assert picture.count("<polyline") == 4, "what was measured and the ideal, in both charts"
