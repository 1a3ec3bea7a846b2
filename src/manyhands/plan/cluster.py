"""Machines that work together, and how people write them: ``3x g3.4xlarge + p2.xlarge``."""

import re
from dataclasses import dataclass
from difflib import get_close_matches

from manyhands.errors import UsageError
from manyhands.plan.catalogue import Catalogue, Instance
from manyhands.plan.costs import CPU

# Names have an x of their own: behind one, it must stand apart.
TERM = re.compile(
    r"(?:(?P<before>\d{1,6})\s*[x×*]\s*)?(?P<name>[^\s+×*/]+)"
    r"(?:(?:\s*[×*]|\s+x)\s*(?P<after>\d{1,6}))?(?:\s*/\s*(?P<workers>\d{1,4}))?"
)


@dataclass(frozen=True)
class Group:
    """So many machines of one kind, each with so many workers, on a device each or with so many threads."""

    instance: Instance
    count: int = 1
    workers: int = 1
    device: str = CPU
    threads: float = 1

    def __str__(self) -> str:
        most = self.instance.devices if self.device != CPU else 1
        return f"{self.count}x {self.instance.name}{'' if self.workers == most else f'/{self.workers}'}"


@dataclass(frozen=True)
class Cluster:
    groups: tuple[Group, ...]

    @property
    def machines(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def workers(self) -> int:
        return sum(group.count * group.workers for group in self.groups)

    @property
    def price(self) -> float:
        """Of an hour of all machines, whether or not all their devices work."""
        return sum(group.count * group.instance.price for group in self.groups)

    @property
    def spot_price(self) -> float | None:
        prices = [group.instance.spot_price for group in self.groups]
        if None in prices:
            return None
        return sum(g.count * price for g, price in zip(self.groups, prices, strict=True) if price)

    def __str__(self) -> str:
        return " + ".join(map(str, self.groups))


def parse_cluster(text: str, catalogue: Catalogue, *, on_devices: bool = True) -> Cluster:
    """A cluster as people write it: ``g3.16xlarge×2``, or ``2x g3.16xlarge/2`` for two workers in each.

    ``on_devices``: GPUs compute, where a machine has them; otherwise processors do.
    """
    groups = []
    for term in text.split("+"):
        found = TERM.fullmatch(term.strip())
        if not found:
            raise UsageError(f"'{text}' is not a cluster; write it like '2x g3.4xlarge + p2.xlarge'")
        instance = instance_named(found["name"], catalogue)
        count = int(found["before"] or found["after"] or 1)
        group = group_of(instance, count, int(found["workers"] or 0), on_devices=on_devices)
        if not count or (group.device != CPU and group.workers > instance.devices):
            raise UsageError(
                f"'{term.strip()}' asks for {count} machines with {group.workers} devices at work in each; "
                f"{instance.name} has {instance.devices}"
            )
        groups.append(group)
    return Cluster(tuple(groups))


def group_of(instance: Instance, count: int, workers: int = 0, *, on_devices: bool = True) -> Group:
    """By default a worker for each device, or one with a thread for each processor; else, a thread each."""
    if on_devices and instance.device:
        return Group(instance, count, workers or instance.devices, instance.device)
    return Group(instance, count, workers or 1, CPU, 1 if workers else instance.vcpus)


def instance_named(name: str, catalogue: Catalogue) -> Instance:
    for instance in catalogue.instances:
        if instance.name.lower() == name.lower():
            return instance
    close = get_close_matches(name, [instance.name for instance in catalogue.instances], n=1)
    advice = f"did you mean '{close[0]}'?" if close else "its names are in its first column"
    raise UsageError(f"the catalogue {catalogue.name} has no '{name}'; {advice}")
