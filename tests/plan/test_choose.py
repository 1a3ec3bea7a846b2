"""Which cluster is taken."""

import time
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from manyhands.plan.calibrate import Calibration, Prediction, Run
from manyhands.plan.choose import Option, cheapest_within, fastest_for, frontier, options_of
from manyhands.plan.cluster import Cluster, Group, parse_cluster
from manyhands.plan.work import Work
from tests.plan.machines import CATALOGUE, SMALL, instance

WORK = Work(rows=1e6, epochs=5, batch=1000, exchange_bytes=1e6)


def option(price: float, hours: float) -> Option:
    seconds = hours * 3600
    return Option(Cluster((Group(instance("x", price)),)), Prediction(seconds, seconds / 1.2, seconds * 1.2))


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=30))
def test_nobody_beats_the_frontier(pairs):
    options = [option(*pair) for pair in pairs]
    best = frontier(options)
    for each in options:
        assert any(b.money <= each.money and b.hours <= each.hours for b in best)
    assert all(a.money <= b.money and a.hours > b.hours for a, b in pairwise(best))


def test_deadline_and_budget():
    options = [option(1, 10), option(4, 3), option(12, 2)]  # 10, 12 and 24 dollars
    assert cheapest_within(options, 4) is options[1]
    assert cheapest_within(options, 3) is options[2]  # three hours may well become 3.6
    assert cheapest_within(options, 1) is None
    assert fastest_for(options, 20) is options[1]
    assert fastest_for(options, 5) is None


def calibration() -> Calibration:
    return Calibration([Run(WORK, parse_cluster("small/1", CATALOGUE), 5000.0)])


def test_a_large_catalogue_is_quick():
    """1,000 kinds of machines in 64 sizes."""
    known = calibration()
    machines = [instance(f"m{n}", 0.1 + n / 1000, vcpus=2 + n % 64) for n in range(1000)]
    began = time.monotonic()
    options = options_of(known, WORK, machines, range(1, 65), on_devices=False)
    best = frontier(options)
    seconds = time.monotonic() - began
    assert len(options) == 64_000 and len(best) > 1
    assert seconds < 60  # 5 on a quiet machine; this only ends what grows with the square


def test_unknown_devices_have_wide_ranges():
    known = calibration()
    options = options_of(known, WORK, [SMALL, *CATALOGUE.instances[2:]], [1], on_devices=True)
    widths = {str(o.cluster): np.log(o.seconds.high / o.seconds.low) for o in options}
    assert widths["1x gpu.4xlarge"] > 3 * widths["1x small"]
