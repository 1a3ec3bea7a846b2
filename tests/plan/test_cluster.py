"""Clusters as people write them."""

import pytest

from manyhands.errors import UsageError
from manyhands.plan.cluster import parse_cluster
from tests.plan.machines import CATALOGUE


@pytest.mark.parametrize(
    ("text", "shown", "machines", "workers", "price"),
    [
        ("small", "1x small", 1, 1, 0.1),
        ("3x small + large", "3x small + 1x large", 4, 4, 0.75),
        ("gpu.4xlarge×2", "2x gpu.4xlarge", 2, 8, 8.0),
        ("gpu.4xlarge x 2", "2x gpu.4xlarge", 2, 8, 8.0),
        ("2*GPU.4xlarge/2", "2x gpu.4xlarge/2", 2, 4, 8.0),
        ("small/3", "1x small/3", 1, 3, 0.1),
    ],
)
def test_ways_of_writing(text, shown, machines, workers, price):
    cluster = parse_cluster(text, CATALOGUE)
    assert (str(cluster), cluster.machines, cluster.workers) == (shown, machines, workers)
    assert cluster.price == pytest.approx(price)
    assert parse_cluster(shown, CATALOGUE) == cluster


def test_processors_in_place_of_devices():
    (group,) = parse_cluster("gpu.4xlarge", CATALOGUE, on_devices=False).groups
    assert (group.device, group.workers, group.threads) == ("cpu", 1, 64)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("smal", "did you mean 'small'?"),
        ("0x small", "0 machines"),
        ("gpu.4xlarge/5", "has 4"),
        ("small +", "is not a cluster"),
        ("", "is not a cluster"),
    ],
)
def test_mistakes(text, said):
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        parse_cluster(text, CATALOGUE)
