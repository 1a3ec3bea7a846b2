"""The cluster model beside tables that others have published: what it predicts of runs it has not seen."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from manyhands.plan.calibrate import Calibration, Prediction, Run
from manyhands.plan.catalogue import open_catalogue
from manyhands.plan.devices import Recurrence, device_named
from manyhands.plan.runs import calibrate, leave_one_out, read_runs

TABLES = Path(__file__).parent / "tables"
MACHINES = str(TABLES / "machines.csv")


def table(name: str, catalogue: str) -> list[Run]:
    return read_runs(str(TABLES / f"{name}.csv"), open_catalogue(catalogue))


@pytest.fixture(scope="module")
def amazon() -> list[Run]:
    """An LSTM on GPU clusters: two runs on one GPU, then nine on several."""
    return table("amazon", "seeds-2019")


def errors(predicted: list[Prediction], runs: list[Run]) -> np.ndarray:
    return np.array([p.seconds / run.seconds - 1 for p, run in zip(predicted, runs, strict=True)])


def predict(calibration: Calibration, runs: list[Run]) -> list[Prediction]:
    return [calibration.predict(run.work, [run.cluster])[0] for run in runs]


def order(seconds: list[float]) -> list[int]:
    return np.argsort(seconds).tolist()


def inside(predicted: list[Prediction], runs: list[Run]) -> float:
    return float(np.mean([p.low <= run.seconds <= p.high for p, run in zip(predicted, runs, strict=True)]))


def test_two_clusters_tell_the_seven_others(amazon):
    """Whichever two of the nine are measured, besides single GPUs."""
    alone, clusters = amazon[:2], amazon[2:]
    worst, means = [], []
    for pair in combinations(clusters, 2):
        others = [run for run in clusters if run not in pair]
        predicted = predict(calibrate([*alone, *pair]), others)
        off = np.abs(errors(predicted, others))
        worst.append(off.max())
        means.append(off.mean())
        assert order([p.seconds for p in predicted]) == order([run.seconds for run in others])
    assert max(worst) <= 0.15 and max(means) <= 0.08


def test_leave_one_out(amazon):
    predicted = leave_one_out(amazon)
    assert np.abs(errors(predicted, amazon)).mean() <= 0.15
    assert 0.7 <= inside(predicted, amazon) <= 0.95


def test_money_of_the_table_and_its_wrong_row(amazon):
    """What the study paid; of one row, for one machine where two ran."""
    paid = [15.98, 11.38, 15.39, 17.69, 16.64, 20.02, 24.17, 29.12, 27.60, 22.32, 21.26]
    ratios = np.array([run.cluster.price * run.seconds / 3600 for run in amazon]) / paid
    wrong = np.flatnonzero(np.abs(ratios - 1) > 0.02).tolist()
    assert [str(amazon[row].cluster) for row in wrong] == ["2x g3.16xlarge/2"]
    assert ratios[wrong[0]] == pytest.approx(2, rel=0.01)


def test_dense_word_vectors_over_ethernet():
    """From one GPU in four ways, and one run of the cluster: when is the cluster slower, and how much?"""
    runs = table("embedding", MACHINES)
    alone, cluster = runs[:4], runs[4:]
    predicted = predict(calibrate([*alone, cluster[0]]), cluster)
    factors = np.array([p.seconds / one.seconds for p, one in zip(predicted, alone, strict=True)])
    true = np.array([run.seconds / one.seconds for run, one in zip(cluster, alone, strict=True)])
    assert (factors > 1).tolist() == (true > 1).tolist() == [True, True, True, False]
    assert np.abs(factors[1:] / true[1:] - 1).max() <= 0.3


def test_partitions_of_a_busy_machine():
    """From one process alone: 3, 5 and 15 partitions on 12 cores."""
    runs = table("iris", MACHINES)
    predicted = predict(calibrate(runs[:1]), runs[1:])
    assert np.abs(errors(predicted, runs[1:])).max() <= 0.3
    assert order([p.seconds for p in predicted]) == order([run.seconds for run in runs[1:]])


@pytest.mark.parametrize("device", ["K80", "M60"])
def test_what_is_known_of_devices_is_what_the_table_tells(amazon, device):
    """An LSTM of two layers of 32 over 100 words of 100 numbers, in batches of 128."""
    costs = calibrate(amazon).costs
    known = device_named(device).priors(device, Recurrence.of(100, 100, (32, 32)), 128)
    assert known[f"row:{device}"].middle == pytest.approx(costs[f"row:{device}"], rel=0.05)
    assert known[f"fixed:{device}"].middle == pytest.approx(costs[f"fixed:{device}"], rel=0.15)


def test_an_empty_cell_is_what_is_usual(tmp_path):
    """Workers wait for each other unless a table says that they do not."""
    table = tmp_path / "runs.csv"
    table.write_text("cluster,seconds,waits,batch\np2.xlarge,5,,\np2.xlarge,5,no,7\n")
    usual, said = (run.work for run in read_runs(str(table), open_catalogue("seeds-2019")))
    assert (usual.waits, said.waits, said.batch) == (True, False, 7)


def test_a_range_is_wider_where_less_is_known(amazon):
    few, all_but = calibrate(amazon[:3]), calibrate(amazon[:-1])
    last = amazon[-1]
    wide, narrow = (predict(known, [last])[0] for known in (few, all_but))
    assert np.log(wide.high / wide.low) > 1.5 * np.log(narrow.high / narrow.low)
