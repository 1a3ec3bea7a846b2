"""A comparison as a table: for a screen, a spreadsheet or a browser."""

import csv
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

from manyhands.report.compare import LOSS, Comparison, Figure, Line, Reached, Target
from manyhands.report.document import Block, document, paragraph, section, table
from manyhands.report.shown import amount, decimals_of, duration, money
from manyhands.storage.files import refuse_to_replace, writing


class Column(NamedTuple):
    head: str
    cells: list[str]


def columns(found: Comparison) -> list[Column]:
    """What a screen shows; a column that no run has anything for is left out."""
    lines, measure = found.lines, found.measure or "score"
    several = any(len(line.folders) > 1 for line in lines)
    shown = {
        "run": [line.name for line in lines],
        "runs": [str(len(line.folders)) if several else "" for line in lines],
        "model": [line.model for line in lines] if len({line.model for line in lines}) > 1 else [],
        "spread": [line.spread for line in lines] if len({line.spread for line in lines}) > 1 else [],
        "workers": [str(line.workers) for line in lines],
        measure: [_score(line.score) for line in lines],
        "95 % interval": [_interval(line) for line in lines],
        "seconds": [_seconds(line.seconds) for line in lines],
        f"{found.unit}/s": [f"{line.rate.mean:,.0f}" for line in lines],
        "speed-up": ["" if line.speedup is None else f"{line.speedup:.2f}" for line in lines],
        "efficiency": ["" if line.efficiency is None else f"{line.efficiency:.0%}" for line in lines],
        "sent/worker": [amount(line.bytes_per_worker, "B") for line in lines],
        "money": [_money(line) for line in lines],
        "to target": [] if found.target is None else [_to_target(line, found.target) for line in lines],
    }
    return [Column(head, [cell or "-" for cell in cells]) for head, cells in shown.items() if any(cells)]


def notes(found: Comparison) -> list[str]:
    """What must be known to read the table."""
    said = [f"speed-up: by {found.unit}/s while learning, relative to {found.baseline}"]
    if any(len(line.folders) > 1 for line in found.lines):
        said.append("runs of the same job with different seeds: the mean ± the standard deviation")
    if any(line.interval for line in found.lines):
        said.append("95 % interval: of the score, for the number of rows that it was measured on (Wilson)")
    if found.target is not None:
        said.append(f"to target: seconds of learning until {_wanted(found.target)}, at the end of an epoch")
    return said


def as_csv(found: Comparison) -> str:
    """A line for each job, with plain numbers."""
    text = io.StringIO()
    rows = [_plain(line, found) for line in found.lines]
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_page(found: Comparison, out: str, warnings: Sequence[str] = (), *, overwrite: bool = False) -> None:
    """Write the comparison as one HTML file that needs nothing else."""
    refuse_to_replace(out, overwrite)
    shown = columns(found)
    rows = list(zip(*(column.cells for column in shown), strict=True))
    blocks: list[Block] = [paragraph(f"Warning: {said}", "warning") for said in warnings]
    blocks.append(table([column.head for column in shown], rows, "The runs"))
    blocks += [paragraph(f"{said[:1].upper()}{said[1:]}.", "note") for said in notes(found)]
    text = document("Comparison of runs", [section("Runs", blocks)])
    with writing(out) as file:
        file.write(text.encode())


def _score(score: Figure | None) -> str:
    if score is None:
        return ""
    return f"{score.mean:.4f}" + ("" if score.spread is None else f" ± {score.spread:.4f}")


def _interval(line: Line) -> str:
    return "" if line.interval is None else "{:.4f}–{:.4f}".format(*line.interval)


def _seconds(figure: Figure) -> str:
    """Both numbers with the decimals that fit the mean.

    >>> _seconds(Figure(83.21, 0.06)), _seconds(Figure(2.5, None))
    ('83.2 ± 0.1 s', '2.50 s')
    """
    if figure.spread is None:
        return duration(figure.mean)
    decimals = decimals_of(figure.mean)
    return f"{figure.mean:,.{decimals}f} ± {figure.spread:,.{decimals}f} s"


def _money(line: Line) -> str:
    return "" if line.money is None else money(line.money.mean, line.currency or "")


def _wanted(target: Target) -> str:
    return f"{target.measure.replace('_', ' ')} {target.value:g}"


def _to_target(line: Line, target: Target) -> str:
    found: Reached | None = line.to_target
    if found is None or found.best is None:
        return "not measured"
    if found.seconds is None:
        worst = "lowest" if target.measure == LOSS else "highest"
        return f"never ({worst} {found.best:.4f})"
    few = "" if found.runs == len(line.folders) else f" ({found.runs} of {len(line.folders)} runs)"
    return _seconds(found.seconds) + few


def _plain(line: Line, found: Comparison) -> dict[str, Any]:
    def parts(name: str, figure: Figure | None) -> dict[str, Any]:
        return {
            name: "" if figure is None else figure.mean,
            f"{name}_spread": "" if figure is None or figure.spread is None else figure.spread,
        }

    low, high = line.interval or ("", "")
    plain = {
        "run": line.name,
        "runs": len(line.folders),
        "model": line.model,
        "spread": line.spread,
        "workers": line.workers,
        "measure": found.measure or "",
        **parts("score", line.score),
        "score_low": low,
        "score_high": high,
        **parts("seconds", line.seconds),
        **parts(f"{found.unit}_per_second", line.rate),
        "speedup": line.speedup,
        "efficiency": line.efficiency,
        "bytes_per_worker": line.bytes_per_worker,
        **parts("money", line.money),
        "currency": line.currency or "",
    }
    if found.target is not None:
        plain |= parts("seconds_to_target", line.to_target.seconds if line.to_target else None)
    return plain
