"""Which cluster to take: the frontier of money and time, the cheapest in time, the fastest for the money."""

from collections.abc import Sequence
from dataclasses import dataclass

from manyhands.plan.calibrate import Calibration, Prediction
from manyhands.plan.catalogue import Instance
from manyhands.plan.cluster import Cluster, group_of
from manyhands.plan.costs import CPU
from manyhands.plan.memory import too_small
from manyhands.plan.work import Work

HOUR = 3600.0
FASTER = 0.9  # of the time, below which it counts as faster


@dataclass(frozen=True)
class Option:
    """A cluster, and what a training takes on it."""

    cluster: Cluster
    seconds: Prediction

    @property
    def hours(self) -> float:
        return self.seconds.seconds / HOUR

    @property
    def money(self) -> float:
        return self.money_of(self.seconds.seconds)

    def money_of(self, seconds: float) -> float:
        return self.cluster.price * seconds / HOUR

    @property
    def on_devices(self) -> bool:
        return any(group.device != CPU for group in self.cluster.groups)


def options_of(
    calibration: Calibration,
    work: Work,
    instances: Sequence[Instance],
    sizes: Sequence[int],
    *,
    on_devices: bool,
) -> list[Option]:
    """Every size of every kind of machine that can hold the training, cheapest first."""
    every = (
        Cluster((group_of(instance, count, on_devices=on_devices),))
        for instance in instances
        for count in sizes
        if count <= work.most_machines
    )
    clusters = [cluster for cluster in every if too_small(work, cluster) is None]
    if not clusters:
        return []
    found = map(Option, clusters, calibration.predict(work, clusters))
    return sorted(found, key=lambda option: option.money)


def frontier(options: Sequence[Option]) -> list[Option]:
    """Those that no other one beats in both money and time, cheapest first."""
    kept: list[Option] = []
    for option in sorted(options, key=lambda option: (option.money, option.hours)):
        if not kept or option.hours < kept[-1].hours:
            kept.append(option)
    return kept


def cheapest_within(options: Sequence[Option], hours: float) -> Option | None:
    """The cheapest that is likely to make it: four of five runs may take as long as the end of the range."""
    return min(
        (option for option in options if option.seconds.high <= hours * HOUR),
        key=lambda option: option.money,
        default=None,
    )


def fastest_for(options: Sequence[Option], money: float) -> Option | None:
    """The fastest that is likely to cost no more."""
    return min(
        (option for option in options if option.money_of(option.seconds.high) <= money),
        key=lambda option: option.hours,
        default=None,
    )


def best_cluster(options: Sequence[Option]) -> Option | None:
    """Of those with several machines, the cheapest."""
    return min(
        (option for option in options if option.cluster.machines > 1), key=lambda o: o.money, default=None
    )
