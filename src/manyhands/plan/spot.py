"""Spot machines: what a run takes and costs on machines that may be taken away, by what happened before.

``read_traces`` reads recordings of a spot market: when machines could be had, and for how much if that was
recorded. ``replay`` starts a run at many moments of them and lets it live through what followed: it waits
while there is no machine, pays while there is one, and loses what it learnt since its last checkpoint
whenever the machine is taken away. ``simulated_traces`` makes recordings for those who only know how often
that happens.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv

from manyhands.errors import InputError, UsageError
from manyhands.storage.files import reading

Floats = npt.NDArray[np.float64]

STARTS = 400  # moments at which a run is started, over all traces
QUANTILES = (0.1, 0.5, 0.9)  # a range that holds 80 % of all starts
MOST_LAPS = 1000  # how often a trace may be gone through: a run that takes longer never ends
SIMULATED_WINDOWS = 2000
TRIED = (0.25, 0.5, 0.71, 1.0, 1.41, 2.0, 4.0)  # times Daly's interval


class Range(NamedTuple):
    """The middle of all starts, and between ``low`` and ``high`` 80 % of them."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Trace:
    """A recording of a market: ``available[n]`` holds from hour ``begins[n]`` to hour ``begins[n + 1]``.

    ``price`` is what a machine cost in each of these times, in its currency an hour; None if it was not told.
    """

    name: str
    begins: Floats
    available: npt.NDArray[np.bool_]
    price: Floats | None = None

    @property
    def hours(self) -> float:
        return float(self.begins[-1])

    @property
    def share_available(self) -> float:
        return float(np.diff(self.begins)[self.available].sum() / self.hours)


@dataclass(frozen=True)
class SpotForecast:
    """What became of a run that was started at many moments."""

    hours: Range  # from the wish to start until it is done
    paid_hours: Range  # of the whole cluster
    interruptions: Range
    cost: Range | None  # of one machine, where traces tell prices
    expected_hours: float
    expected_paid_hours: float
    expected_cost: float | None
    checkpoint_hours: float
    starts: int


def read_traces(place: str, machines: int = 1) -> list[Trace]:
    """The traces in a folder and all folders below it, or in one file: of SkyPilot's JSON, or CSV.

    JSON is ``{"metadata": {"gap_seconds": 300}, "data": [0, 1, …]}`` with the number of machines that could
    be had (https://github.com/skypilot-org/spot-traces); CSV has the columns ``time`` (a date, or seconds),
    ``available`` and, if known, ``price``. A run has what it needs while ``machines`` of them could be had,
    or all that were asked for where fewer were.
    """
    if machines < 1:
        raise UsageError(f"a cluster has at least one machine, not {machines}")
    with reading(place):
        root = Path(place)
        files = sorted(root.rglob("*")) if root.is_dir() else [root]
        found = [path for path in files if path.suffix.lower() in (".json", ".csv")]
        if not found:
            raise InputError(f"{place} holds no traces of a spot market: no file that ends in .json or .csv")
        return [_read(path, machines) for path in found]


def _read(path: Path, machines: int) -> Trace:
    parse = _from_json if path.suffix.lower() == ".json" else _from_csv
    begins, counts, price = parse(path)
    if len(counts) < 2:
        raise InputError(f"{path} has {len(counts)} entries; a trace needs two or more")
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise InputError(f"{path} has {counts[~(counts >= 0)][0]} available machines in an entry")
    needed = min(machines, max(float(counts.max()), 1.0))
    return Trace(str(path), begins, counts >= needed, price)


def _from_json(path: Path) -> tuple[Floats, Floats, None]:
    try:
        found: Any = json.loads(path.read_text("utf-8"))
        gap = float(found["metadata"]["gap_seconds"])
        counts = np.asarray(found["data"], np.float64)
        if not 0 < gap < math.inf or counts.ndim != 1:
            raise ValueError("gap_seconds must be more than 0, and data a list of numbers")
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error).splitlines()[0]
        raise InputError(f"{path} is no trace of a spot market as SkyPilot writes them: {what}") from None
    return np.arange(len(counts) + 1, dtype=np.float64) * (gap / 3600), counts, None


def _from_csv(path: Path) -> tuple[Floats, Floats, Floats | None]:
    try:
        table = csv.read_csv(path, convert_options=csv.ConvertOptions(timestamp_parsers=[]))
    except pa.ArrowException as error:
        raise InputError(f"{path} cannot be read as CSV: {str(error).splitlines()[0]}") from None
    names = table.column_names
    for name in ("time", "available"):
        if name not in names:
            raise InputError(f"{path} has no column {name}; a trace has time, available and maybe price")
    columns = {name: table.column(name).to_pylist() for name in names}
    seconds = np.array([_seconds(path, n, cell) for n, cell in enumerate(columns["time"], 2)])
    counts = np.array([_number(path, n, "available", cell) for n, cell in enumerate(columns["available"], 2)])
    if (np.diff(seconds) <= 0).any():
        line = int(np.flatnonzero(np.diff(seconds) <= 0)[0]) + 3
        raise InputError(f"{path} line {line} is not later than the line before it; sort the rows by time")
    prices = columns.get("price")
    price = prices and [_number(path, n, "price", cell) for n, cell in enumerate(prices, 2)]
    gap = float(np.median(np.diff(seconds))) if len(seconds) > 1 else 0.0  # so long, the last entry lasts
    return (
        (np.append(seconds, seconds[-1] + gap) - seconds[0]) / 3600,
        counts,
        np.array(price) if price else None,
    )


def _seconds(path: Path, line: int, cell: Any) -> float:
    if isinstance(cell, int | float):
        return float(cell)
    try:
        moment = datetime.fromisoformat(str(cell))
    except ValueError:
        raise InputError(f"{path} line {line} has '{cell}' as time; write a date or seconds") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _number(path: Path, line: int, name: str, cell: Any) -> float:
    known = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
    try:
        value = known[cell.lower()] if isinstance(cell, str) and cell.lower() in known else float(cell)
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise InputError(f"{path} line {line} has '{cell}' as {name}; it must be a number, 0 or more")
    return value


def simulated_traces(
    hours_between: float, waiting_hours: float = 0.0, windows: int = SIMULATED_WINDOWS, seed: int = 0
) -> list[Trace]:
    """A market that takes machines away at random, every ``hours_between`` on average.

    Another machine can be had after ``waiting_hours`` on average. Both times are drawn from exponential
    distributions, as if nobody knew anything of the market but its averages.
    """
    if not 0 < hours_between < math.inf or not 0 <= waiting_hours < math.inf:
        raise UsageError(
            "the mean time between interruptions must be more than 0 hours, and the wait 0 or more"
        )
    draw = np.random.default_rng(seed)
    lengths = np.empty(2 * windows)
    lengths[::2] = draw.exponential(waiting_hours, windows) if waiting_hours else 0.0
    lengths[1::2] = draw.exponential(hours_between, windows)
    begins = np.concatenate([[0.0], np.cumsum(lengths)])
    return [Trace("simulated", begins, np.tile([False, True], windows))]


def hours_between_interruptions(traces: Sequence[Trace]) -> float:
    """The mean time for which a machine can be kept; infinite where it is never taken away."""
    markets = [_Market(trace) for trace in traces]
    windows = sum(len(market.lengths) for market in markets)
    if not windows or any(math.isinf(market.lengths[0]) for market in markets if len(market.lengths)):
        return math.inf
    return float(sum(market.lengths.sum() for market in markets) / windows)


def daly_hours(save_hours: float, hours_between: float) -> float:
    """How long to learn between two checkpoints, by Daly's estimate, which refines Young's.

    >>> round(daly_hours(1 / 60, 10), 3)  # a minute to save, ten hours between interruptions
    0.566
    """
    if math.isinf(hours_between):
        return math.inf
    if save_hours >= 2 * hours_between:
        return hours_between
    ratio = save_hours / (2 * hours_between)
    young = math.sqrt(2 * save_hours * hours_between)
    return max(young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_hours, save_hours)


def best_checkpoint_hours(
    work_hours: float, save_hours: float, restart_hours: float, traces: Sequence[Trace]
) -> float:
    """How long to learn between two checkpoints: near Daly's estimate, what replays best in these traces."""
    first = daly_hours(save_hours, hours_between_interruptions(traces))
    tried = sorted({min(max(first * times, save_hours, 1e-4), work_hours) for times in TRIED})

    def expected(hours: float) -> float:
        forecast = replay(work_hours, hours, restart_hours, traces, save_hours=save_hours, starts=STARTS // 4)
        return forecast.expected_hours

    return min(tried, key=expected)


def replay(
    work_hours: float,
    checkpoint_hours: float,
    restart_hours: float,
    traces: Sequence[Trace],
    *,
    save_hours: float = 0.0,
    starts: int = STARTS,
) -> SpotForecast:
    """Start a run at many moments of the traces, evenly spread, and let it live through what follows.

    ``work_hours`` is what the run takes undisturbed, ``checkpoint_hours`` how long it learns between two
    checkpoints, ``save_hours`` what one takes, and ``restart_hours`` what it takes from having a machine
    until learning goes on: booting, loading, reading the checkpoint; the first start takes as long. A trace
    that ends before the run does is gone through again. All traces count by their length.
    """
    for name, value in (("work", work_hours), ("checkpoint", checkpoint_hours)):
        if not 0 < value < math.inf:
            raise UsageError(f"the hours of {name} must be more than 0, not {value:g}")
    if min(save_hours, restart_hours) < 0 or not traces:
        raise UsageError("a replay needs traces, and hours that are not negative")
    run = _Run(work_hours, min(checkpoint_hours, work_hours), restart_hours, save_hours)
    whole = sum(trace.hours for trace in traces)
    parts = [_live_through(run, t, max(round(starts * t.hours / whole), 1)) for t in traces]
    hours, paid, interruptions, cost = (np.concatenate(column) for column in zip(*parts, strict=True))
    priced = not np.isnan(cost).any()
    return SpotForecast(
        hours=_range(hours),
        paid_hours=_range(paid),
        interruptions=_range(interruptions),
        cost=_range(cost) if priced else None,
        expected_hours=float(hours.mean()),
        expected_paid_hours=float(paid.mean()),
        expected_cost=float(cost.mean()) if priced else None,
        checkpoint_hours=run.checkpoint,
        starts=len(hours),
    )


def _range(numbers: Floats) -> Range:
    return Range(*(float(number) for number in np.quantile(numbers, QUANTILES)))


class _Run(NamedTuple):
    work: float
    checkpoint: float
    restart: float
    save: float

    def kept(self, window: Floats) -> Floats:
        """The work of a window that is still there when the machine is taken away."""
        learning = np.maximum(window - self.restart, 0.0)
        rounds = np.floor(learning / (self.checkpoint + self.save) + 1e-9)
        kept: Floats = rounds * self.checkpoint
        return kept

    def takes(self, work: Floats) -> Floats:
        """How long so much work takes from having a machine, if it is not taken away."""
        saves = np.maximum(np.ceil(work / self.checkpoint - 1e-9) - 1, 0)
        needed: Floats = self.restart + work + saves * self.save
        return needed


class _Market:
    """A trace as windows in which there is a machine, and what has been paid up to any moment of it.

    Its time goes round in a circle, which begins where there is no machine: no window is cut by its end.
    """

    def __init__(self, trace: Trace) -> None:
        lengths, free = np.diff(trace.begins), trace.available
        price = np.full(len(free), np.nan) if trace.price is None else trace.price
        turn = int(np.argmin(free))  # the first time without a machine, if there is one
        lengths, free, price = (np.roll(array, -turn) for array in (lengths, free, price))
        self.times = np.concatenate([[0.0], np.cumsum(lengths)])
        self.period = float(self.times[-1])
        self.paid = np.concatenate([[0.0], np.cumsum(lengths * free)])
        self.cost = np.concatenate([[0.0], np.cumsum(np.where(free, lengths * price, 0.0))])
        edges = np.diff(np.concatenate([[0], free.astype(np.int8), [0]]))
        self.begins, self.ends = (
            self.times[np.flatnonzero(edges == 1)],
            self.times[np.flatnonzero(edges == -1)],
        )
        if free.all():
            self.ends = np.array([np.inf])
        self.lengths = self.ends - self.begins

    def total(self, what: Floats, moments: Floats) -> Floats:
        """What is paid from the beginning up to these moments, in however many rounds."""
        rounds, rest = np.divmod(moments, self.period)
        total: Floats = rounds * what[-1] + np.interp(rest, self.times, what)
        return total


def _live_through(run: _Run, trace: Trace, starts: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Of every start in a trace: hours until the run is done, paid hours, interruptions, cost."""
    market = _Market(trace)
    if not len(market.lengths):
        raise InputError(f"{trace.name} never has as many machines as are needed")
    began = (np.arange(starts) + 0.5) * market.period / starts
    first = np.searchsorted(market.ends, began, side="right") % len(
        market.ends
    )  # the window it is in, or next
    ended, interruptions = _end(run, market, began, first)
    if np.isinf(ended).any():
        raise InputError(
            f"in {trace.name}, a run of {run.work:g} hours never ends: machines are taken away before "
            f"{run.restart + run.checkpoint + run.save:g} hours have passed, which it needs for a checkpoint"
        )
    paid = market.total(market.paid, ended) - market.total(market.paid, began)
    cost = market.total(market.cost, ended) - market.total(market.cost, began)
    return ended - began, paid, interruptions, cost


def _end(run: _Run, market: _Market, began: Floats, first: npt.NDArray[np.intp]) -> tuple[Floats, Floats]:
    """When each start is done, and how often it was interrupted; infinite if it never is."""
    count = len(market.lengths)
    ended, interruptions = np.full(len(began), np.inf), np.zeros(len(began))
    # The first window, of which a part may be over; it may also lie in the next round.
    wrapped = (market.ends[first] <= began) * market.period
    opened = np.maximum(market.begins[first] + wrapped, began)
    rest = market.ends[first] + wrapped - opened
    done = run.takes(np.full(len(began), run.work)) <= rest
    ended[done] = (opened + run.takes(np.full(len(began), run.work)))[done]
    left = run.work - np.minimum(run.kept(np.where(np.isinf(rest), 0.0, rest)), run.work)
    interruptions[~done] = 1
    order = (first[:, None] + 1 + np.arange(count)) % count  # the windows that follow, in their turn
    round_of = wrapped[:, None] + ((first[:, None] + 1 + np.arange(count)) // count) * market.period
    kept = run.kept(market.lengths)
    before = np.concatenate([np.zeros((len(began), 1)), np.cumsum(kept[order], axis=1)], axis=1)
    for lap in range(MOST_LAPS):
        going = np.flatnonzero(~done)
        if not len(going) or math.isinf(market.lengths[0]):
            break
        work = np.maximum(left[going, None] - before[going, :-1], 0.0)
        fits = run.takes(work) <= market.lengths[order[going]]
        reached = fits.any(axis=1)
        here, window = going[reached], fits[reached].argmax(axis=1)
        opened_at = market.begins[order[here, window]] + round_of[here, window] + lap * market.period
        ended[here] = opened_at + run.takes(work[reached, window])
        interruptions[here] += lap * count + window
        done[here] = True
        left = np.maximum(left - before[:, -1], 0.0)
        if not before[0, -1] and not reached.all():
            break  # nothing is ever kept
    return ended, interruptions
