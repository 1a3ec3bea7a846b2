"""``manyhands audit``: rows whose labels look wrong."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyhands.catalog import LEARNERS, load
from manyhands.cli.options import READING, AsJson, Memory, Overwrite, Panel, Threads, add_verb, value_of
from manyhands.cli.progress import watch
from manyhands.settings import ReadingSettings, Settings, TrainingSettings

if TYPE_CHECKING:
    from rich.table import Table

    from manyhands.auditing.audit import Audit

MODEL = "ngrams"
CLASSIFIERS = [name for name in LEARNERS if load(LEARNERS, "model", name).learns == "labels"]
# A fold is trained to its end, on one thread, by settings that are not chosen, and nothing of it is kept.
LEFT_OUT = ("effort", "deterministic", "early_stopping", "checkpoint_seconds", "price", "budget")
MOST_CONFUSIONS = 5
SHOWN_LETTERS = 200


def add_to(app: typer.Typer, arguments: list[str]) -> None:
    model = value_of("--model", arguments, MODEL)
    kind: type[Settings] = load(LEARNERS, "model", model).Settings

    def panels() -> list[Panel]:
        return [
            Panel(f"Settings of {model}", [kind]),
            Panel("Training", [TrainingSettings], LEFT_OUT),
            READING,
        ]

    add_verb(app, audit, [kind, TrainingSettings, ReadingSettings], panels, LEFT_OUT)


def audit(
    data: Annotated[
        list[str], typer.Argument(help="A prepared dataset, or raw files with labels.", show_default=False)
    ],
    settings: dict[str, Any],
    top: Annotated[int, typer.Option(help="Number of rows to list, the most suspicious first.")] = 50,
    out: Annotated[
        str | None,
        typer.Option(help="Also write all suspicious rows to this file or URL: .csv or .jsonl."),
    ] = None,
    html: Annotated[
        str | None, typer.Option(help="Also write a page about the listed rows to this file or URL.")
    ] = None,
    model: Annotated[str, typer.Option(help=f"Model to judge by: {', '.join(CLASSIFIERS)}.")] = MODEL,
    folds: Annotated[
        int, typer.Option(help="Number of folds: each is judged by a model that was trained on the others.")
    ] = 5,
    memory: Memory = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """List the rows whose labels look wrong, and why.

    Every row is judged by models that have not seen it. Listed are those that find another label likelier,
    with the n-grams that say so.
    """
    from manyhands.auditing.audit import audit as judge
    from manyhands.auditing.suspects import format_of
    from manyhands.report.audit_page import write_page
    from manyhands.storage.files import refuse_to_replace

    if out is not None:  # what cannot be written is said before the work
        format_of(out)
    for place in filter(None, (out, html)):
        refuse_to_replace(place, overwrite)
    with watch() as progress:
        found = judge(
            data,
            top=top,
            model=model,
            folds=folds,
            memory=memory,
            threads=threads,
            progress=progress,
            **settings,
        )
    if out is not None:
        found.suspicious.write(out, overwrite=overwrite)
    if html is not None:
        write_page(found, html, overwrite=overwrite)
    if as_json:
        typer.echo(json.dumps(found.facts(), ensure_ascii=False))
    else:
        _show(found, out, html)


def _show(found: "Audit", out: str | None, html: str | None) -> None:
    from rich.console import Console

    Console(highlight=False, markup=False).print(_table(found))
    typer.echo(found.summary())
    for (label, suggested), count in found.confusions().most_common(MOST_CONFUSIONS):
        typer.echo(f"  {count:,} labelled {label} look like {suggested}")
    if found.unjudged:
        typer.echo(f"{found.unjudged:,} rows could not be judged: too few others have their labels")
    if found.left_out:
        typer.echo(f"{found.left_out:,} rows without a usable text or label were left out")
    if out is not None:
        typer.echo(f"{out}: all {len(found.suspicious):,} suspicious rows")
    if html is not None:
        typer.echo(f"{html}: a page about the {len(found.suspects):,} rows above; open it in a browser")


def _table(found: "Audit") -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table("row", "label", "p", "looks like", "p", "text, and why", box=None, pad_edge=False)
    for column in table.columns:
        column.no_wrap = True
    for one in found.suspects:
        table.add_row(
            Text(f"{one.file.rsplit('/', 1)[-1]}:{one.line}"),
            Text(one.label),
            f"{one.probability:.3f}",
            Text(one.suggested_label),
            f"{one.suggested_probability:.3f}",
            Text(one.text[:SHOWN_LETTERS] + "\n" + "; ".join(part.ngram for part in one.why)),
        )
    return table
