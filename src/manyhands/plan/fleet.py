"""Many clusters at once, as arrays: a row for each cluster, a column for each group of equal machines."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from manyhands.plan.cluster import Cluster, Group
from manyhands.plan.costs import CPU, ONE_STREAM_GBPS, UNKNOWN_LINK, Costs

Floats = npt.NDArray[np.float64]
BYTES_OF_GBIT = 1e9 / 8


@dataclass(frozen=True)
class Fleet:
    """Groups that a cluster does not have count 0 machines, and are otherwise as its first."""

    clusters: tuple[Cluster, ...]
    devices: tuple[str, ...]  # of all of them, each once
    instances: tuple[str, ...]
    count: Floats
    workers: Floats  # in each machine of a group
    threads: Floats
    processors: Floats  # of each machine
    gbps: Floats  # nominal
    device: npt.NDArray[np.intp]
    instance: npt.NDArray[np.intp]
    unlinked: frozenset[str]  # instances of whose network nothing is known

    def of_devices(self, costs: Costs, name: str) -> Floats:
        """A cost that differs from device to device; where it does not, the one for all."""
        each = [costs.get(f"{name}:{device}", costs.get(name, np.nan)) for device in self.devices]
        return np.array(each)[self.device]

    def of_instances(self, costs: Costs, name: str) -> Floats:
        """A cost that differs from machine to machine, 1 where nothing is said of it."""
        each = [costs.get(f"{name}:{instance}", 1.0) for instance in self.instances]
        return np.array(each)[self.instance]

    def links(self, costs: Costs) -> Floats:
        """Bytes/s that an exchange gets of each machine's link."""
        return self.gbps * BYTES_OF_GBIT * costs["link"] * self.of_instances(costs, "link")

    @property
    def by_processors(self) -> tuple[str, ...]:
        """Instances whose processors compute."""
        if CPU not in self.devices:
            return ()
        computing = self.instance[self.device == self.devices.index(CPU)]
        return tuple(self.instances[index] for index in np.unique(computing))

    @property
    def mixed(self) -> npt.NDArray[np.bool_]:
        """Whose machines are not all of one kind."""
        kinds = np.where(self.count > 0, self.instance * 1000 + self.workers, -1)
        mixed: npt.NDArray[np.bool_] = (kinds != kinds[:, :1]) & (self.count > 0)
        return mixed


def fleet_of(clusters: Sequence[Cluster]) -> Fleet:
    width = max(len(cluster.groups) for cluster in clusters)
    rows = [[*c.groups, *[_nobody(c.groups[0])] * (width - len(c.groups))] for c in clusters]
    devices = tuple(sorted({group.device for row in rows for group in row}))
    instances = tuple(sorted({group.instance.name for row in rows for group in row}))
    device_index = {name: index for index, name in enumerate(devices)}
    instance_index = {name: index for index, name in enumerate(instances)}

    def table(value: str) -> Floats:
        return np.array([[getattr(group, value) for group in row] for row in rows], np.float64)

    return Fleet(
        clusters=tuple(clusters),
        devices=devices,
        instances=instances,
        count=table("count"),
        workers=table("workers"),
        threads=table("threads"),
        processors=np.array([[group.instance.vcpus for group in row] for row in rows]),
        gbps=np.array([[nominal_gbps(group.instance.network_gbps) for group in row] for row in rows]),
        device=np.array([[device_index[group.device] for group in row] for row in rows]),
        instance=np.array([[instance_index[group.instance.name] for group in row] for row in rows]),
        unlinked=frozenset(
            group.instance.name for row in rows for group in row if group.instance.network_gbps is None
        ),
    )


def nominal_gbps(network_gbps: float | None) -> float:
    """What one stream can have of a network; what is usual, where nothing is known."""
    return UNKNOWN_LINK.middle if network_gbps is None else min(network_gbps, ONE_STREAM_GBPS)


def _nobody(like: Group) -> Group:
    return replace(like, count=0)
