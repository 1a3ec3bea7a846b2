"""``manyhands evaluate``: how good a model is on rows with labels."""

import json
from typing import Annotated

import typer

from manyhands.cli.options import (
    AsJson,
    BundleArgument,
    Format,
    LabelChoice,
    LabelField,
    Memory,
    TextField,
    Threads,
    given,
)
from manyhands.cli.progress import watch
from manyhands.cli.show_scores import show


def add_to(app: typer.Typer) -> None:
    app.command("evaluate")(evaluate)


def evaluate(
    bundle: BundleArgument,
    data: Annotated[list[str], typer.Argument(help="A prepared dataset, or raw files.", show_default=False)],
    split: Annotated[str, typer.Option(help="Of a dataset: test, valid or train.")] = "test",
    at: Annotated[
        float, typer.Option(help="Where rows have several labels: those at least so likely are predicted.")
    ] = 0.5,
    top: Annotated[
        list[int] | None, typer.Option(help="Also precision and recall of so many likeliest labels.")
    ] = None,
    format: Format = "auto",  # noqa: A002
    text_field: TextField = None,
    label_field: LabelField = None,
    labels: LabelChoice = None,
    memory: Memory = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Show accuracy, F1, precision and recall of every label, and which are taken for which."""
    from manyhands.evaluate.judging import evaluate as judge

    with watch() as progress:
        report = judge(
            bundle,
            data,
            split=split,
            threshold=at,
            top=tuple(top or ()),
            memory=memory,
            threads=threads,
            reading=given(format=format, text_field=text_field, label_field=label_field, labels=labels),
            progress=progress,
        )
    if as_json:
        typer.echo(json.dumps(report.facts()))
    else:
        show(report.facts())
