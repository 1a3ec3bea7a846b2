"""``manyhands compare``: runs beside each other."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from manyhands.cli.options import RUN, AsJson, Overwrite

if TYPE_CHECKING:
    from manyhands.report.compare import Comparison

Runs = Annotated[
    list[str],
    typer.Argument(
        help="Run folders, or folders that hold some, such as a scaling study; also URLs.", show_default=False
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        help="Run that speed-ups are relative to; by default the first of those with the fewest workers."
    ),
]
Price = Annotated[
    float | None,
    typer.Option(help="Dollars an hour of a machine, for runs whose records name no price."),
]
WORDS = ("run", "model", "spread")  # columns that hold no numbers


def compare(
    runs: Runs,
    baseline: Baseline = None,
    target: Annotated[
        str | None,
        typer.Option(help="Also tell how long each run took to a validation score, like accuracy=0.9."),
    ] = None,
    price: Price = None,
    html: Annotated[
        str | None, typer.Option(help="Also write the table to this HTML file.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print comma-separated values.", rich_help_panel=RUN)
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Compare runs: score and its interval, seconds, speed, speed-up, efficiency, bytes sent, money.

    Runs that differ by their seeds only are one line, with mean and spread.
    """
    from manyhands.errors import UsageError
    from manyhands.report.compare import compare as figures

    if as_json and as_csv:
        raise UsageError("choose --json or --csv, not both")
    warnings: list[str] = []
    found = figures(runs, baseline=baseline, target=target, price=price, warn=warnings.append)
    for sentence in warnings:
        typer.echo(f"warning: {sentence}", err=True)
    if html is not None:
        from manyhands.report.compare_table import write_page

        write_page(found, html, warnings, overwrite=overwrite)
    if as_json:
        typer.echo(json.dumps({**found.facts(), "warnings": warnings}))
    elif as_csv:
        from manyhands.report.compare_table import as_csv as csv_of

        typer.echo(csv_of(found), nl=False)
    else:
        _show(found)


def _show(found: "Comparison") -> None:
    from manyhands.cli.figures import print_figures
    from manyhands.report.compare_table import columns, notes

    shown = columns(found)
    rows = zip(*(column.cells for column in shown), strict=True)
    print_figures([column.head for column in shown], list(rows), names=WORDS)
    for said in notes(found):
        typer.echo(said)
