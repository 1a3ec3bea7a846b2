"""Tables of runs that were measured somewhere: a CSV file with a row for each.

``cluster`` and ``seconds`` are needed; all other columns say what was trained, and where one is missing, all
runs are alike in it.
"""

from typing import Any

from fsspec.core import url_to_fs
from pyarrow import csv

from manyhands.errors import InputError, UsageError
from manyhands.plan.calibrate import Calibration, Prediction, Run
from manyhands.plan.catalogue import Catalogue
from manyhands.plan.cluster import parse_cluster
from manyhands.plan.costs import Prior
from manyhands.plan.work import Pattern, Work
from manyhands.storage.files import reading

NUMBERS = ("rows", "epochs", "batch", "exchange_bytes")
CHOICES = ("shared", "waits", "balanced", "recurrent", "in_memory")
YES = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
PATTERNS = {"ring": Pattern.RING, "star": Pattern.STAR}
# Tables tell of training, mostly without the start of its processes, and of rows that were there already.
PRIORS = {"start": Prior(0.05, 2.0)}
# What is taken to be trained where a table does not say.
USUAL = {"rows": 1e6, "epochs": 1.0, "batch": 100.0, "exchange_bytes": 4e6}


def read_runs(path: str, catalogue: Catalogue, **usual: Any) -> list[Run]:
    """The runs of a table; ``usual`` is what is the same for all of them."""
    with reading(path):
        filesystem, place = url_to_fs(path)
        with filesystem.open(place) as file:
            table = csv.read_csv(file)
    names = table.column_names
    known = {"cluster", "seconds", "pattern", *NUMBERS, *CHOICES}
    for name in ("cluster", "seconds"):
        if name not in names:
            raise InputError(f"{path} has no column '{name}'; a table of runs has at least cluster,seconds")
    if unknown := set(names) - known:
        raise InputError(
            f"{path} has a column '{min(unknown)}', which means nothing here; "
            f"there are: {', '.join(sorted(known))}"
        )
    if not len(table):
        raise InputError(f"{path} has no runs")
    return [
        _run(row, catalogue, usual, f"{path} line {line}") for line, row in enumerate(table.to_pylist(), 2)
    ]


def _run(row: dict[str, Any], catalogue: Catalogue, usual: dict[str, Any], where: str) -> Run:
    row = {name: value for name, value in row.items() if value not in (None, "")}
    for name in ("cluster", "seconds"):
        if name not in row:
            raise InputError(f"{where} has no {name}")
    facts: dict[str, Any] = {}
    for name in ("seconds", *NUMBERS):
        if name in row:
            facts[name] = _number(row[name], name, where)
    for name in CHOICES:
        if name in row:
            said = str(row[name]).lower()
            if said not in YES:
                raise InputError(f"{where}: {name} is '{said}'; write yes or no")
            facts[name] = YES[said]
    if "pattern" in row:
        if row["pattern"] not in PATTERNS:
            raise InputError(f"{where}: pattern is '{row['pattern']}'; there are: {', '.join(PATTERNS)}")
        facts["pattern"] = PATTERNS[row["pattern"]]
    seconds = facts.pop("seconds")
    try:
        cluster = parse_cluster(str(row["cluster"]), catalogue)
    except UsageError as error:
        raise InputError(f"{where}: {error}") from None
    return Run(Work(**{**USUAL, **usual, **facts}), cluster, seconds)


def _number(value: Any, name: str, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{where}: {name} is '{value}', which is not a number") from None
    if not 0 <= number < float("inf") or (name != "exchange_bytes" and not number):
        raise InputError(f"{where}: {name} is {value}; it must be more than 0")
    return number


def calibrate(runs: list[Run]) -> Calibration:
    return Calibration(runs, PRIORS)


def leave_one_out(runs: list[Run]) -> list[Prediction]:
    """Each run as the others predict it."""
    return [
        calibrate(runs[:index] + runs[index + 1 :]).predict(run.work, [run.cluster])[0]
        for index, run in enumerate(runs)
    ]
