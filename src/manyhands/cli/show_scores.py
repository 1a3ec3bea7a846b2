"""The figures of an evaluation on the screen."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

MOST_LABELS = 25
LARGEST_CONFUSION = 10  # labels that fit side by side
WIDEST_NAME = 12  # above a column; the names down the side stand in the same order


def show(report_facts: dict[str, Any]) -> None:
    """Print the facts of a report, fresh or as they were read from JSON."""
    facts, labels = report_facts, report_facts["labels"]
    console = Console(highlight=False, markup=False)
    console.print(_summary(facts), soft_wrap=True)
    if facts["unknown_labels"]:
        console.print(
            f"{facts['unknown_labels']:,} of the rows have a label that the model does not know; "
            "such a label counts as wrong",
            soft_wrap=True,
        )
    if facts.get("left_out"):
        console.print(f"{facts['left_out']:,} rows without a text or a label are not judged", soft_wrap=True)
    for k, found in facts["at"].items():
        console.print(f"P@{k} {found['precision']:.4f}, R@{k} {found['recall']:.4f}", soft_wrap=True)
    console.print(_labels(labels))
    if facts["confusion"] is not None and len(labels) <= LARGEST_CONFUSION:
        console.print(_confusion(list(labels), facts["confusion"]), soft_wrap=True)


def _summary(facts: dict[str, Any]) -> str:
    figures = [f"accuracy {facts['accuracy']:.4f}"]
    figures += [f"macro F1 {facts['macro_f1']:.4f}", f"micro F1 {facts['micro_f1']:.4f}"]
    if facts["log_loss"] is not None:
        figures.append(f"log loss {facts['log_loss']:.4f}")
    if facts["threshold"] is not None:
        figures.append(f"threshold {facts['threshold']:g}")
    return f"{facts['rows']:,} rows: {', '.join(figures)}"


def _labels(labels: dict[str, dict[str, float]]) -> Table:
    table = Table("label", "precision", "recall", "F1", "rows", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    shown = list(labels.items())
    if len(shown) > MOST_LABELS:
        shown = sorted(shown, key=lambda item: -item[1]["rows"])[:MOST_LABELS]
    for name, found in shown:
        rates = (f"{found[key]:.4f}" for key in ("precision", "recall", "f1"))
        table.add_row(Text(name), *rates, f"{found['rows']:,}")
    if len(labels) > MOST_LABELS:
        table.add_row(f"… {len(labels) - MOST_LABELS:,} more")
    return table


def _confusion(names: list[str], counts: list[list[int]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("true \\ predicted", no_wrap=True, min_width=len("true \\ predicted"))
    # A name may be cut short, a number never.
    widest = max(len(f"{count:,}") for row in counts for count in row)
    for name in names:
        table.add_column(
            Text(name), justify="right", no_wrap=True, min_width=widest, max_width=max(widest, WIDEST_NAME)
        )
    for name, row in zip(names, counts, strict=True):
        table.add_row(Text(name), *(f"{count:,}" for count in row))
    return table
