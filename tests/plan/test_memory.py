"""Clusters whose machines cannot hold a training are left out, with a reason."""

from dataclasses import replace

import pytest

from manyhands.plan.calibrate import Calibration, Run
from manyhands.plan.catalogue import Catalogue
from manyhands.plan.choose import options_of
from manyhands.plan.cluster import parse_cluster
from manyhands.plan.memory import gib_needed, why_too_small
from manyhands.plan.plan import Plan
from manyhands.plan.work import Pattern, Work
from tests.plan.machines import CATALOGUE, GPUS, LARGE, SMALL, instance

GIB = 1 << 30
WORK = Work(rows=1e6, epochs=1, batch=1000, exchange_bytes=1e6, state_bytes=3 * GIB, in_place=True, copies=3)
TINY, UNKNOWN = instance("tiny", memory_gib=4), instance("unknown", memory_gib=0)


def needed(text: str, work: Work = WORK) -> float:
    cluster = parse_cluster(text, CATALOGUE, on_devices=False)
    return gib_needed(work, cluster.groups[0], cluster.machines)


def test_what_a_machine_holds():
    assert needed("small") == 3, "alone, there is nothing to merge"
    assert needed("2x small") == needed("2x small/4") == 9
    assert needed("2x small/4", replace(WORK, in_place=False)) == 18, "each worker has a model of its own"
    assert needed("small", replace(WORK, pattern=Pattern.MEANS)) == 9, "a driver has its part in any case"


def test_clusters_that_cannot_hold_it_are_no_options():
    """Of 16 GiB, 8 are for training: enough for the model, and not for what merging takes beside it."""
    known = Calibration([Run(WORK, parse_cluster("small/1", CATALOGUE), 5000.0)])
    machines = [SMALL, TINY, UNKNOWN]
    options = options_of(known, WORK, machines, [1, 2], on_devices=False)
    assert {str(option.cluster) for option in options} == {"1x small", "1x unknown", "2x unknown"}
    made = Plan(options, Catalogue("test", machines), known, WORK, [], on_devices=False)
    assert made.left_out == ["tiny"]
    assert made.why_not(parse_cluster("2x small", CATALOGUE)) == (
        "2x small cannot hold it: it takes about 9.0 GB of every machine, and of a small it may have 8.0"
    )
    assert made.why_not(parse_cluster("small", CATALOGUE)) == ""


def test_machines_that_are_no_longer_offered_are_not_named():
    known = Calibration([Run(WORK, parse_cluster("small/1", CATALOGUE), 5000.0)])
    catalogue = Catalogue("test", [replace(TINY, retired=True)])
    assert Plan([], catalogue, known, WORK, [], on_devices=False).left_out == []
    assert Plan([], catalogue, known, WORK, [], on_devices=False, retired=True).left_out == ["tiny"]


@pytest.mark.parametrize(("gib", "fits"), [(2.0, False), (4.0, True), (None, True)])
def test_a_device_must_hold_the_model(gib, fits):
    small = replace(GPUS, device_memory_gib=gib)
    cluster = parse_cluster("gpu.4xlarge", Catalogue("test", [small, LARGE]))
    assert (why_too_small(WORK, cluster) == "") == fits
