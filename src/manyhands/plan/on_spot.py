"""Clusters of spot machines: cheaper by the hour, and taken away now and then."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from manyhands.errors import UsageError
from manyhands.plan.choose import Option, frontier
from manyhands.plan.cluster import Cluster
from manyhands.plan.spot import SpotForecast, Trace, best_checkpoint_hours, replay

SAVE_HOURS = 10 / 3600  # a checkpoint, uploaded
RESTART_HOURS = 5 / 60  # a machine boots, installs, and reads the checkpoint


@dataclass(frozen=True)
class SpotOption:
    """A cluster of spot machines: ``option`` is what it would take undisturbed, at spot prices."""

    option: Option
    forecast: SpotForecast

    @property
    def hours(self) -> tuple[float, float, float]:
        """Expected, and from and to: of interruptions and of the time that the training itself takes."""
        seconds, found = self.option.seconds, self.forecast
        low, high = seconds.low / seconds.seconds, seconds.high / seconds.seconds
        return found.expected_hours, found.hours.low * low, found.hours.high * high

    @property
    def money(self) -> float:
        if self.forecast.expected_cost is not None:  # traces know what an hour cost then
            return self.forecast.expected_cost * self.option.cluster.machines
        return self.forecast.expected_paid_hours * self.option.cluster.price


def on_spot(options: Sequence[Option], traces: Sequence[Trace], most: int) -> list[SpotOption]:
    """The frontier of spot machines, by their prices; cheapest first, at most so many."""
    offered = [option for option in options if option.cluster.spot_price is not None]
    if not offered:
        raise UsageError("no machine of the catalogue has a spot price; leave out --spot, or give another")
    best = frontier([_at_spot_price(option) for option in offered])[:most]
    return sorted((_interrupted(option, traces) for option in best), key=lambda option: option.money)


def _interrupted(option: Option, traces: Sequence[Trace]) -> SpotOption:
    interval = best_checkpoint_hours(option.hours, SAVE_HOURS, RESTART_HOURS, traces)
    return SpotOption(option, replay(option.hours, interval, RESTART_HOURS, traces, save_hours=SAVE_HOURS))


def _at_spot_price(option: Option) -> Option:
    groups = (
        replace(group, instance=replace(group.instance, price=group.instance.spot_price or 0.0))
        for group in option.cluster.groups
    )
    return replace(option, cluster=Cluster(tuple(groups)))
