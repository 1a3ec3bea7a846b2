"""``manyhands inspect``: what is in a dataset."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from manyhands.cli.show import describe


def add_to(app: typer.Typer) -> None:
    app.command("inspect")(inspect)


def inspect(
    dataset: Annotated[str, typer.Argument(help="Folder or URL of a dataset.", show_default=False)],
    length: Annotated[int, typer.Option(help="Say how many rows have no more tokens than this.")] = 100,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every file with its checksum.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show rows, labels, lengths, words, and where every row of the input went."""
    from manyhands.data.dataset import open_dataset
    from manyhands.data.describe import describe_dataset

    opened = open_dataset(dataset)
    if verify:
        opened.verify()
    if as_json:
        typer.echo(json.dumps(asdict(describe_dataset(opened, length))))
        return
    describe(opened, length)
    if verify:
        typer.echo("every checksum is right")
