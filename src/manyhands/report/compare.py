"""``compare``: runs beside each other, by their records: scores, seconds and money."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from manyhands.errors import InputError, UsageError
from manyhands.evaluation.intervals import wilson
from manyhands.report.records import RECORD, RunRecord, read_runs

SECONDS_PER_HOUR = 3600
CURRENCY = "USD"
MEASURES = {"labels": "accuracy", "words": "log_likelihood"}
UNITS = {"labels": "rows", "words": "words"}
TASKS = {"labels": "a classifier", "words": "word vectors"}
RATES = {"labels": "rows_per_second", "words": "tokens_per_second"}
SPLITS = ("test", "validation")  # the first that all runs have is compared
LOSS = "loss"  # of the training rows, and the only measure of which less is better


@dataclass(frozen=True)
class Figure:
    """The mean over runs and, if there are several, their standard deviation."""

    mean: float
    spread: float | None


@dataclass(frozen=True)
class Target:
    """A score to reach: by the validation rows after an epoch; ``loss`` by the training rows."""

    measure: str
    value: float

    def reached_by(self, score: float) -> bool:
        return score <= self.value if self.measure == LOSS else score >= self.value


@dataclass(frozen=True)
class Reached:
    """Seconds of learning until the target, over the ``runs`` that reached it; ``best`` of all epochs."""

    seconds: Figure | None
    runs: int
    best: float | None


@dataclass(frozen=True)
class Line:
    """Runs of the same job, which differ by their seeds at most. ``rate`` counts rows or words."""

    name: str
    folders: list[str]
    seeds: list[Any]
    model: str
    spread: str
    workers: int
    score: Figure | None
    interval: tuple[float, float] | None  # 95 %, of an accuracy, by the number of rows that were judged
    rows_judged: int | None
    seconds: Figure
    rate: Figure
    speedup: float | None  # by rate, relative to the baseline
    efficiency: float | None  # speed-up per worker; None beside another model
    bytes_per_worker: float
    money: Figure | None
    currency: str | None
    to_target: Reached | None


@dataclass(frozen=True)
class Comparison:
    lines: list[Line]
    baseline: str
    learns: str
    measure: str | None  # like "test accuracy"; None where no run has a score
    target: Target | None

    @property
    def unit(self) -> str:
        return UNITS[self.learns]

    def facts(self) -> dict[str, Any]:
        """All figures, ready for JSON."""
        return {
            "baseline": self.baseline,
            "measure": self.measure,
            "unit": self.unit,
            "target": self.target and asdict(self.target),
            "runs": [asdict(line) for line in self.lines],
        }


def compare(
    places: Sequence[str],
    *,
    baseline: str | None = None,
    target: str | None = None,
    price: float | None = None,
    warn: Callable[[str], None] = lambda sentence: None,
) -> Comparison:
    """Compare the runs in these folders, or in folders below them.

    ``baseline`` names the run that speed-ups are relative to: by default the first of those with the fewest
    workers. ``target`` is a score to reach, like ``accuracy=0.9``. ``price`` is that of a machine for an
    hour, for runs whose records have none. What makes runs hard to compare is told to ``warn``.
    """
    if price is not None and not (math.isfinite(price) and price >= 0):
        raise UsageError(f"--price must be 0 or more, not {price:g}")
    return compare_records(read_runs(places, warn), baseline=baseline, target=target, price=price, warn=warn)


def compare_records(
    records: Sequence[RunRecord],
    *,
    baseline: str | None = None,
    target: str | None = None,
    price: float | None = None,
    warn: Callable[[str], None] = lambda sentence: None,
) -> Comparison:
    """The same for records that were read already."""
    learns = _task(records)
    wanted = None if target is None else _target(target, learns)
    runs = [_run(record, learns, price) for record in records]
    _warn_of_differences(runs, warn)
    split = _split(runs)
    jobs: dict[str, list[_Run]] = {}
    for run in runs:
        jobs.setdefault(run.job, []).append(run)
    names = _names(records)
    first = _baseline(list(jobs.values()), names, baseline)
    lines = [_line(same, names, split, wanted, first) for same in jobs.values()]
    measure = None if split is None else f"{split} {MEASURES[learns].replace('_', ' ')}"
    return Comparison(lines, _name(first, names), learns, measure, wanted)


@dataclass(frozen=True)
class _Run:
    """What a comparison needs of a record, checked."""

    record: RunRecord
    job: str  # the same for runs that differ by their seeds at most
    data: tuple[str, int]  # fingerprint and rows
    scores: dict[str, tuple[float, int | None]]  # by split: the score, and of how many rows
    seconds: float
    rate: float
    bytes_per_worker: float
    money: float | None
    currency: str | None
    curve: list[tuple[float, dict[str, float]]]  # after each epoch: seconds of learning, and scores


def _task(records: Sequence[RunRecord]) -> str:
    first = records[0]
    for record in records:
        if record.learns not in TASKS:
            raise InputError(f"{record.folder}/{RECORD} is damaged: it learns '{record.learns}'; train again")
        if record.learns != first.learns:
            raise InputError(
                f"{first.folder} is {TASKS[first.learns]} but {record.folder} is {TASKS[record.learns]}: "
                "their scores have nothing in common; compare them apart"
            )
    return first.learns


def _target(text: str, learns: str) -> Target:
    measure, _, value = text.rpartition("=")
    measure = (measure.strip() or MEASURES[learns]).replace(" ", "_")
    known = [LOSS, *(("accuracy", "macro_f1", "micro_f1") if learns == "labels" else ("log_likelihood",))]
    if measure not in known:
        raise UsageError(f"--target {text}: the runs have no '{measure}'; choose {' or '.join(known)}")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"--target must be a score to reach, like {MEASURES[learns]}=0.9, not '{text}'")
    return Target(measure, number)


def _run(record: RunRecord, learns: str, price: float | None) -> _Run:
    facts = record.facts
    try:
        money, currency = _money(facts, price)
        return _Run(
            record,
            _job(record),
            (str(facts["data"].get("fingerprint", "")), int(facts["data"].get("rows", 0))),
            _scores(facts, MEASURES[learns]),
            float(facts["seconds"]),
            float(facts[RATES[learns]]),
            _bytes_per_worker(record),
            money,
            currency,
            _curve(facts),
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(f"{record.folder}/{RECORD} is damaged ({error}); train again") from None


def _job(record: RunRecord) -> str:
    facts, machine = record.facts, record.facts.get("machine", {})
    settings = {name: value for name, value in facts["settings"].items() if name != "seed"}
    data = [facts["data"].get(name) for name in ("fingerprint", "rows")]
    where = [machine.get(name) for name in ("system", "cores")]
    parts = [facts["model"], facts.get("spread"), record.workers, facts.get("threads"), data, where, settings]
    return json.dumps(parts, sort_keys=True)


def _scores(facts: dict[str, Any], measure: str) -> dict[str, tuple[float, int | None]]:
    scores, rows = facts["scores"], facts["data"].get("splits", {})
    judged = {"test": scores.get("test") or {}}
    if scores.get("valid"):
        epochs = scores["valid"]
        judged["validation"] = epochs[scores.get("best_epoch", len(epochs)) - 1]
    counts = {"test": judged["test"].get("rows"), "validation": rows.get("valid")}
    return {
        split: (float(found[measure]), counts[split]) for split, found in judged.items() if measure in found
    }


def _money(facts: dict[str, Any], price: float | None) -> tuple[float | None, str | None]:
    known = facts.get("price")
    if known:
        return float(known["total"]), str(known.get("currency", CURRENCY))
    if price is None:
        return None, None
    nodes = str(facts["settings"].get("nodes", 1))
    machines = int(nodes) if nodes.isdigit() else 1
    return float(facts["seconds"]) / SECONDS_PER_HOUR * price * machines, CURRENCY


def _bytes_per_worker(record: RunRecord) -> float:
    traffic = record.facts.get("traffic", {})
    if "bytes_per_worker" in traffic:
        return float(traffic["bytes_per_worker"])
    sent = float(traffic.get("bytes", 0))
    if not sent:
        return 0.0
    # Written before records said it.
    from manyhands.catalog import SPREADS, load  # noqa: PLC0415 - spreads are slow to import

    return sent / (record.workers if load(SPREADS, "spread", record.facts["spread"]).adds_up_bytes else 1)


def _curve(facts: dict[str, Any]) -> list[tuple[float, dict[str, float]]]:
    """After each epoch, the seconds of learning so far and the scores."""
    scores, curve, so_far = facts["scores"], [], 0.0
    losses, judged = scores.get("train", []), scores.get("valid", [])
    for number, lap in enumerate(facts.get("laps", [])):
        if "learning_seconds" in lap:
            so_far = float(lap["learning_seconds"])
        else:  # written before laps said it: what the slowest worker was seen to do
            by_worker = zip(
                *(spent for part, spent in lap["seconds"].items() if part != "validate"), strict=False
            )
            so_far += max((sum(map(float, spent)) for spent in by_worker), default=0.0)
        found = judged[number] if number < len(judged) else {}
        loss = {LOSS: losses[number][LOSS]} if number < len(losses) else {}
        curve.append((so_far, {name: float(value) for name, value in {**found, **loss}.items()}))
    return curve


def _warn_of_differences(runs: list[_Run], warn: Callable[[str], None]) -> None:
    by_data: dict[tuple[str, int], list[str]] = {}
    for run in runs:
        by_data.setdefault(run.data, []).append(run.record.folder)
    if len(by_data) > 1:
        kinds = [f"{_listed(folders)} on {data[1]:,} rows ({data[0]})" for data, folders in by_data.items()]
        warn(f"the data differ, so scores and seconds are hard to compare: {'; '.join(kinds)}")
    compiled = [run.record.folder for run in runs if run.record.facts.get("compiled")]
    if compiled:
        warn(
            f"the seconds of {_listed(compiled)} include compiling, which happens once after an installation"
        )


def _listed(folders: list[str], most: int = 3) -> str:
    more = len(folders) - most
    return ", ".join(folders[:most]) + (f" and {more} more" if more > 0 else "")


def _split(runs: list[_Run]) -> str | None:
    """The rows by which runs are compared: those that all were judged by, or else that any was."""
    for enough in (all, any):
        for split in SPLITS:
            if enough(split in run.scores for run in runs):
                return split
    return None


def _names(records: Sequence[RunRecord]) -> dict[str, str]:
    """The name of each run folder: its last part, unless several have the same."""
    last = [record.name for record in records]
    return {r.folder: r.name if last.count(r.name) == 1 else r.folder for r in records}


def _name(same: list[_Run], names: dict[str, str]) -> str:
    return names[same[0].record.folder] + (f" (+{len(same) - 1})" if len(same) > 1 else "")


def _baseline(jobs: list[list[_Run]], names: dict[str, str], wanted: str | None) -> list[_Run]:
    if wanted is None:
        return min(jobs, key=lambda same: same[0].record.workers)
    for same in jobs:
        folders = [run.record.folder for run in same]
        if wanted.rstrip("/") in {*folders, *(names[folder] for folder in folders), _name(same, names)}:
            return same
    known = _listed(list(names.values()), 10)
    raise UsageError(f"--baseline {wanted} is none of the runs; they are {known}")


def _figure(values: list[float]) -> Figure:
    return Figure(fmean(values), stdev(values) if len(values) > 1 else None)


def _line(
    same: list[_Run],
    names: dict[str, str],
    split: str | None,
    target: Target | None,
    first: list[_Run],
) -> Line:
    base, reference = first[0].record, fmean(run.rate for run in first)
    record, rate = same[0].record, _figure([run.rate for run in same])
    scores = [run.scores[split] for run in same if split is not None and split in run.scores]
    score = _figure([value for value, _ in scores]) if scores else None
    rows = scores[0][1] if scores else None
    shares = score is not None and rows and record.learns == "labels"
    speedup = rate.mean / reference if reference else None
    comparable = speedup is not None and record.facts["model"] == base.facts["model"]
    priced = [run.money for run in same if run.money is not None and run.currency == same[0].currency]
    return Line(
        name=_name(same, names),
        folders=[run.record.folder for run in same],
        seeds=[run.record.seed for run in same],
        model=str(record.facts["model"]),
        spread=str(record.facts.get("spread", "single")),
        workers=record.workers,
        score=score,
        interval=wilson(score.mean, rows) if shares and score and rows else None,
        rows_judged=rows,
        seconds=_figure([run.seconds for run in same]),
        rate=rate,
        speedup=speedup,
        efficiency=speedup * base.workers / record.workers if comparable and speedup else None,
        bytes_per_worker=fmean(run.bytes_per_worker for run in same),
        money=_figure(priced) if len(priced) == len(same) else None,
        currency=same[0].currency,
        to_target=None if target is None else _reached(same, target),
    )


def _reached(same: list[_Run], target: Target) -> Reached:
    seconds, values = [], []
    for run in same:
        judged = [(after, found[target.measure]) for after, found in run.curve if target.measure in found]
        values += [value for _, value in judged]
        first = next((after for after, value in judged if target.reached_by(value)), None)
        if first is not None:
            seconds.append(first)
    best = (min if target.measure == LOSS else max)(values, default=None)
    return Reached(_figure(seconds) if seconds else None, len(seconds), best)
