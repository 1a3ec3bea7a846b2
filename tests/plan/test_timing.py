"""The cluster model: by hand where that can be done, and what must hold of any cluster."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.plan.calibrate import Calibration, Run
from manyhands.plan.cluster import Cluster, Group, parse_cluster
from manyhands.plan.costs import PRIORS, Prior
from manyhands.plan.fleet import fleet_of
from manyhands.plan.simulate import mean_of_slowest, without_waiting
from manyhands.plan.timing import time_parts
from manyhands.plan.work import Pattern, Storage, Work
from tests.plan.machines import CATALOGUE, SMALL, instance

EXACT = {name: prior.middle for name, prior in PRIORS.items()} | {
    **{"row:cpu": 1e-3, "fixed:cpu": 1e-9, "row:M60": 1e-4, "fixed:M60": 1e-9},
    **{
        "jitter": 1e-12,
        "latency": 0.0,
        "turn": 0.0,
        "start": 2.0,
        "engine": 5.0,
        "link": 1.0,
        "threads": 1.0,
        "serial": 0.0,
    },
}
WORK = Work(rows=10_000, epochs=2, batch=100, exchange_bytes=125e6 / 4)


def parts(text: str, work: Work = WORK, **costs):
    fleet = fleet_of([parse_cluster(text, CATALOGUE)])
    found = time_parts(work, fleet, EXACT | costs, work.batch)
    return {name: float(value[0]) for name, value in vars(found).items()}


def test_one_process_by_hand():
    """4 threads learn 20,000 rows of a millisecond."""
    assert parts("small") == pytest.approx(
        {"start": 2, "load": 0, "compute": 5, "wait": 0, "exchange": 0}, abs=1e-6
    )


def test_a_ring_by_hand():
    """100 turns of 200 rows; half of what is sent goes over a link of 125 MB/s, twice."""
    found = parts("2x small", replace(WORK, engine=True, passes_before=1))
    expected = {"start": 7, "load": 1.25, "compute": 2.5, "wait": 0, "exchange": 25}
    assert found == pytest.approx(expected, abs=1e-9)


def test_a_star_by_hand():
    found = parts("3x small", replace(WORK, pattern=Pattern.STAR, shared=True))
    assert found["exchange"] == pytest.approx(200 * 4 * 0.25)


def test_a_file_server_is_shared_and_an_object_store_is_not():
    stored = {way: replace(WORK, storage=way, data_bytes=300e6) for way in Storage}
    load = {way: [parts(f"{n}x small", work)["load"] for n in (1, 4)] for way, work in stored.items()}
    assert load == {Storage.LOCAL: [0, 0], Storage.S3: [2, 0.5], Storage.NFS: [2, 2]}


def test_workers_of_a_machine_share_its_processors():
    one, eight = parts("small/4"), parts("small/8")
    assert one["compute"] == pytest.approx(5) and eight["compute"] == pytest.approx(5)


def test_the_slowest_is_waited_for_unless_rows_are_given_by_speed():
    work = replace(WORK, exchange_bytes=0)
    equal, balanced = (
        parts("small/1 + large/1", work),
        parts("small/1 + large/1", replace(work, balanced=True)),
    )
    slow = {"core:small": 3.0}
    waiting = parts("small/1 + large/1", work, **slow)
    given_by_speed = parts("small/1 + large/1", replace(work, balanced=True), **slow)
    assert equal["wait"] == pytest.approx(balanced["wait"], abs=1e-6) == pytest.approx(0, abs=1e-6)
    assert sum(waiting.values()) == pytest.approx(2 + 30)
    assert sum(given_by_speed.values()) == pytest.approx(2 + 15)  # 1 + 1/3 as fast as one


@given(st.lists(st.floats(0.5, 2), min_size=1, max_size=6), st.floats(0, 0.3))
def test_who_waits_for_the_slowest_is_no_faster(steps, jitter):
    seconds = np.array(steps)
    together = mean_of_slowest(seconds, jitter)
    alone = without_waiting(seconds, jitter, 0.0)
    assert together >= seconds.max() * 0.9
    assert alone <= together * 1.1


@given(st.integers(1, 32), st.sampled_from(list(Pattern)), st.booleans())
def test_more_bytes_and_slower_links_never_help(machines, pattern, shared):
    work = replace(WORK, pattern=pattern, shared=shared)
    cluster = Cluster((Group(SMALL, machines),))
    slow = Cluster((Group(instance("slow", network_gbps=0.5), machines),))
    plain, more, slower = (
        time_parts(w, fleet_of([c]), EXACT, w.batch).seconds[0]
        for w, c in [(work, cluster), (replace(work, exchange_bytes=2e8), cluster), (work, slow)]
    )
    assert plain <= more and plain <= slower
    assert machines > 1 or plain == more == slower


def test_costs_are_found_again():
    """Runs that the model itself made up: what they cost is what comes out."""
    true = EXACT | {"row:cpu": 3e-4, "link": 0.5}
    clusters = [parse_cluster(text, CATALOGUE) for text in ("small", "2x small", "4x small", "8x small")]
    runs = [
        Run(WORK, cluster, float(time_parts(WORK, fleet_of([cluster]), true, WORK.batch).seconds[0]))
        for cluster in clusters
    ]
    known = {"core:small": Prior(1, 1e-3), "link:small": Prior(1, 1e-3), "threads": Prior(1, 1e-3)}
    calibration = Calibration(runs[:3], known)
    assert calibration.costs["link"] == pytest.approx(0.5, rel=0.1)
    (last,) = calibration.predict(WORK, clusters[3:])
    assert last.low < runs[3].seconds < last.high
    assert last.seconds == pytest.approx(runs[3].seconds, rel=0.05)


def test_more_machines_than_can_learn_do_not_help():
    few = replace(WORK, most_machines=2, exchange_bytes=0)
    assert parts("8x small", few)["compute"] == pytest.approx(parts("2x small", few)["compute"])
