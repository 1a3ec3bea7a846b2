"""``plan``: what a training would take and cost on machines that can be rented, before any is paid for."""

from dataclasses import dataclass, replace
from typing import Any

from manyhands.data.dataset import open_dataset
from manyhands.models.recurrent.settings import LstmSettings
from manyhands.plan.calibrate import Calibration, Run
from manyhands.plan.catalogue import Catalogue, open_catalogue
from manyhands.plan.choose import Option, options_of
from manyhands.plan.cluster import Cluster, group_of, parse_cluster
from manyhands.plan.costs import CPU, Prior
from manyhands.plan.devices import Recurrence, device_named
from manyhands.plan.memory import too_small, why_too_small
from manyhands.plan.probe import THIS_MACHINE, Probe, probe
from manyhands.plan.runs import PRIORS, read_runs
from manyhands.plan.work import Parts, Storage, Work
from manyhands.records import Progress

MOST_MACHINES = 16
# The processors that were probed are the measure of all others.
PROBED = {f"core:{THIS_MACHINE}": Prior(1.0, 1e-3)}


@dataclass(frozen=True)
class Plan:
    """Clusters to choose from, cheapest first, and the model that predicts them."""

    options: list[Option]
    catalogue: Catalogue
    calibration: Calibration
    work: Work
    runs: list[Run]
    on_devices: bool  # clusters that people name compute on their GPUs, where they have any
    probe_seconds: float = 0.0
    retired: bool = False  # kinds of machines that are no longer offered are among them

    @property
    def left_out(self) -> list[str]:
        """Kinds of machines that are offered, of which no cluster can hold the training."""
        offered = (each for each in self.catalogue.instances if self.retired or not each.retired)
        one = (Cluster((group_of(each, 1, on_devices=False),)) for each in offered)
        able = {group.instance.name for option in self.options for group in option.cluster.groups}
        small = (cluster.groups[0].instance.name for cluster in one if too_small(self.work, cluster))
        return [name for name in small if name not in able]

    def why_not(self, cluster: Cluster) -> str:
        """Why a cluster is not among the options, if its memory is the reason."""
        return why_too_small(self.work, cluster)

    def option(self, text: str) -> Option:
        """Any cluster, as people write it."""
        cluster = self.cluster(text)
        return Option(cluster, self.calibration.predict(self.work, [cluster])[0])

    def cluster(self, text: str) -> Cluster:
        return parse_cluster(text, self.catalogue, on_devices=self.on_devices)

    def explain(self, cluster: Cluster) -> Parts:
        """Where its seconds would go."""
        return self.calibration.parts(self.work, [cluster])


def plan(
    data: str,
    *,
    model: str = "ngrams",
    spread: str = "allreduce",
    catalogue: str = "aws",
    machines: int = MOST_MACHINES,
    retired: bool = False,
    storage: Storage = Storage.LOCAL,
    progress: Progress | None = None,
    **settings: Any,
) -> Plan:
    """Probe this machine with a few short trainings, and predict the training on all machines of a catalogue.

    ``settings`` are those of ``train``. ``machines`` is how many of a kind a cluster may have, ``retired``
    includes kinds that are no longer offered, ``storage`` is where the machines will find the rows.
    """
    opened = open_catalogue(catalogue)
    probed = probe(data, model=model, spread=spread, progress=progress, **settings)
    work = replace(probed.work, storage=storage, data_bytes=_bytes(data))
    calibration = Calibration(probed.runs, PROBED | _device_priors(probed, opened))
    ways = {False, True} if isinstance(probed.settings, LstmSettings) else {False}
    options = _options(calibration, work, opened, machines, ways, retired=retired)
    return Plan(options, opened, calibration, work, probed.runs, True in ways, probed.seconds, retired)


def plan_from_runs(
    table: str,
    *,
    catalogue: str = "aws",
    machines: int = MOST_MACHINES,
    retired: bool = False,
    **facts: Any,
) -> Plan:
    """Predict more of what a table of measured runs tells of; the first run says what is trained."""
    opened = open_catalogue(catalogue)
    runs = read_runs(table, opened, **facts)
    calibration = Calibration(runs, PRIORS)
    groups = [group for run in runs for group in run.cluster.groups]
    measured = {group.instance.name for group in groups}
    known = Catalogue(opened.name, [each for each in opened.instances if each.name in measured])
    ways = {group.device != CPU for group in groups}
    options = _options(calibration, runs[0].work, known, machines, ways, retired=True)
    return Plan(options, opened, calibration, runs[0].work, runs, True in ways)


def _bytes(data: str) -> float:
    """Of the training rows, as they are stored."""
    return float(sum(part.bytes for part in open_dataset(data).manifest.parts if part.split == "train"))


def _options(
    calibration: Calibration,
    work: Work,
    catalogue: Catalogue,
    machines: int,
    ways: set[bool],
    *,
    retired: bool,
) -> list[Option]:
    """All clusters; ``ways`` tells whether processors (False) or devices (True) compute."""
    offered = [instance for instance in catalogue.instances if retired or not instance.retired]
    options: list[Option] = []
    for on_devices in ways:
        able = [instance for instance in offered if instance.device or not on_devices]
        options += options_of(calibration, work, able, range(1, machines + 1), on_devices=on_devices)
    return sorted(options, key=lambda option: option.money)


def _device_priors(probed: Probe, catalogue: Catalogue) -> dict[str, Prior]:
    """What is known of the GPUs of a catalogue, for a model of this size."""
    settings = probed.settings
    if not isinstance(settings, LstmSettings):
        return {}
    size = Recurrence.of(min(probed.words, settings.max_length), settings.dim, settings.widths)
    priors: dict[str, Prior] = {}
    for name in {instance.device for instance in catalogue.instances if instance.device}:
        priors |= device_named(name).priors(name, size, probed.work.batch)
    return priors
