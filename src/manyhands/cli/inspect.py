"""``manyhands inspect``: what is in a dataset, or how a model comes along that learns from a stream."""

import json
from dataclasses import asdict
from typing import Annotated

import typer


def inspect(
    dataset: Annotated[
        str,
        typer.Argument(
            help="Folder or URL of a dataset, or folder of a model that stream wrote.", show_default=False
        ),
    ],
    length: Annotated[int, typer.Option(help="Show the share of rows with at most this many tokens.")] = 100,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every file with its checksum.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show rows, labels, lengths, words, and where every row of the input went.

    Of a stream: where every message went, its position, and speed and loss over time.
    """
    from manyhands.bundle.bundle import load_bundle
    from manyhands.cli.show import show_dataset, show_stream
    from manyhands.data.dataset import open_dataset
    from manyhands.data.describe import describe_dataset
    from manyhands.streaming.record import stream_record

    record = stream_record(dataset)
    if record is not None:
        if verify:
            load_bundle(dataset).verify()
        typer.echo(json.dumps(record)) if as_json else show_stream(dataset, record)
    else:
        opened = open_dataset(dataset)
        if verify:
            opened.verify()
        facts = describe_dataset(opened, length)
        if as_json:
            typer.echo(json.dumps(asdict(facts)))
        else:
            show_dataset(facts)
    if verify and not as_json:
        typer.echo("all checksums match")
