"""``manyhands inspect``: what is in a dataset."""

import json
from dataclasses import asdict
from typing import Annotated

import typer


def inspect(
    dataset: Annotated[str, typer.Argument(help="Folder or URL of a dataset.", show_default=False)],
    length: Annotated[int, typer.Option(help="Show the share of rows with at most this many tokens.")] = 100,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every file with its checksum.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show rows, labels, lengths, words, and where every row of the input went."""
    from manyhands.cli.show import show_dataset
    from manyhands.data.dataset import open_dataset
    from manyhands.data.describe import describe_dataset

    opened = open_dataset(dataset)
    if verify:
        opened.verify()
    facts = describe_dataset(opened, length)
    if as_json:
        typer.echo(json.dumps(asdict(facts)))
        return
    show_dataset(facts)
    if verify:
        typer.echo("all checksums match")
