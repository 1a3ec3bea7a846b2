"""From measured runs to costs, and from costs to predictions with a range.

Costs are known up to a factor before anything is measured (``costs``). Measured runs make them surer: what
fits both best is found by least squares over logarithms. How far off the best may be follows from how steeply
the fit worsens around it; how far runs differ from any model, from how well it fits.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import t as student

from manyhands.plan.cluster import Cluster
from manyhands.plan.costs import OWN_LINK, UNKNOWN_LINK, Costs, Prior, prior_of
from manyhands.plan.fleet import Fleet, Floats, fleet_of
from manyhands.plan.timing import time_parts
from manyhands.plan.work import Parts, Work

NOISE = 0.08  # by which a run differs from the next one of the same, as long as few have been seen
NOISE_SEEN = 6.0  # how many runs that is worth
INSIDE = 0.8  # of the truth, what a range holds
STEP = 1e-4
OF_ALL = ("threads", "link", "bus", "latency", "jitter", "start", "engine", "serial", "store", "turn")


@dataclass(frozen=True)
class Run:
    """A training that took place."""

    work: Work
    cluster: Cluster
    seconds: float


@dataclass(frozen=True)
class Prediction:
    """Seconds of a training; four of five are between ``low`` and ``high``."""

    seconds: float
    low: float
    high: float


class Calibration:
    """Costs that fit what was measured, and how sure they are.

    ``priors`` are what is known of some costs besides, in place of what is usual.
    """

    def __init__(self, runs: Sequence[Run], priors: Mapping[str, Prior] | None = None) -> None:
        self._priors = dict(priors or {})
        self._recurrent = any(run.work.recurrent for run in runs)
        self._count = len(runs)
        self.reference = min(run.work.batch for run in runs)
        self._measured = [
            (work, fleet_of([run.cluster for run in same]), np.log([run.seconds for run in same]))
            for work, same in _by_work(runs).items()
        ]
        for _, fleet, _ in self._measured:
            self._learn_of(fleet)
        every = (name for work, fleet, _ in self._measured for name in _names(fleet))
        self._names = list(dict.fromkeys(every))
        self._middle = np.log([self._prior(name).middle for name in self._names])
        self._deviation = np.array([self._prior(name).deviation for name in self._names])
        self._fit()

    def _fit(self) -> None:
        self.noise, self._fitted = NOISE, self._middle
        for _ in range(3):  # the noise follows from the fit, and the fit from the noise
            found = least_squares(self._misfit, self._fitted)
            self._fitted = found.x
            off = found.fun[: self._count] * self.noise
            self.noise = float(np.sqrt((NOISE_SEEN * NOISE**2 + off @ off) / (NOISE_SEEN + self._count)))
        self._covariance = np.linalg.inv(found.jac.T @ found.jac)
        self.costs: Costs = dict(zip(self._names, np.exp(self._fitted).tolist(), strict=True))

    def _misfit(self, logs: Floats) -> Floats:
        costs = dict(zip(self._names, np.exp(logs).tolist(), strict=True))
        off = [
            (_log_seconds(work, fleet, costs, self.reference) - seconds) / self.noise
            for work, fleet, seconds in self._measured
        ]
        return np.concatenate([*off, (logs - self._middle) / self._deviation])

    def _prior(self, name: str) -> Prior:
        return self._priors.get(name) or prior_of(name, recurrent=self._recurrent)

    def _learn_of(self, fleet: Fleet) -> None:
        """Of machines whose network is not known, links may be anything usual."""
        for name in fleet.unlinked:
            self._priors.setdefault(f"link:{name}", Prior(OWN_LINK.middle, UNKNOWN_LINK.deviation))

    def parts(self, work: Work, clusters: Sequence[Cluster]) -> Parts:
        """Where the seconds go."""
        fleet = fleet_of(clusters)
        return time_parts(work, fleet, self.costs | self._middles_of(fleet), self.reference)

    def _middles_of(self, fleet: Fleet) -> Costs:
        """What was never measured is taken to be usual."""
        return {name: self._prior(name).middle for name in _names(fleet) if name not in self.costs}

    def predict(self, work: Work, clusters: Sequence[Cluster]) -> list[Prediction]:
        fleet = fleet_of(clusters)
        self._learn_of(fleet)
        usual = self._middles_of(fleet)
        middle = _log_seconds(work, fleet, self.costs | usual, self.reference)
        variance = self.noise**2 + self._doubt_of_costs(work, fleet, usual, middle)
        variance += self._doubt_of_usual(work, fleet, usual, middle)
        width = student.ppf((1 + INSIDE) / 2, NOISE_SEEN + self._count) * np.sqrt(variance)
        bounds = np.exp([middle, middle - width, middle + width])
        return [Prediction(*map(float, each)) for each in bounds.T]

    def _doubt_of_costs(self, work: Work, fleet: Fleet, usual: Costs, middle: Floats) -> Floats:
        slopes = []
        for name in self._names:
            costs = self.costs | usual | {name: self.costs[name] * np.exp(STEP)}
            slopes.append((_log_seconds(work, fleet, costs, self.reference) - middle) / STEP)
        doubt: Floats = np.einsum("ic,ij,jc->c", slopes, self._covariance, slopes)
        return doubt

    def _doubt_of_usual(self, work: Work, fleet: Fleet, usual: Costs, middle: Floats) -> Floats:
        """All unmeasured costs of a kind at once: equal machines have one of each kind."""
        doubt = np.zeros_like(middle)
        for kind in {name.partition(":")[0] for name in usual}:
            moved = {
                name: value * float(np.exp(STEP * self._prior(name).deviation))
                for name, value in usual.items()
                if name.partition(":")[0] == kind
            }
            costs = self.costs | usual | moved
            doubt += ((_log_seconds(work, fleet, costs, self.reference) - middle) / STEP) ** 2
        return doubt


def _by_work(runs: Sequence[Run]) -> dict[Work, list[Run]]:
    groups: dict[Work, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.work].append(run)
    return groups


def _log_seconds(work: Work, fleet: Fleet, costs: Costs, reference: float) -> Floats:
    return np.log(time_parts(work, fleet, costs, reference).seconds)


def _names(fleet: Fleet) -> list[str]:
    """The costs that these clusters have to do with."""
    of_devices = [f"{kind}:{device}" for kind in ("row", "fixed") for device in fleet.devices]
    links = [f"link:{name}" for name in fleet.instances]
    return [*of_devices, *links, *(f"core:{name}" for name in fleet.by_processors), *OF_ALL]
