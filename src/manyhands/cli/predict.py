"""``manyhands predict``: labels for texts, one line for each."""

from typing import Annotated

import typer

from manyhands.cli.options import BundleArgument, Format, TextField, Threads, given
from manyhands.cli.progress import watch


def add_to(app: typer.Typer) -> None:
    app.command("predict")(predict)


def predict(
    bundle: BundleArgument,
    sources: Annotated[
        list[str] | None,
        typer.Argument(help="A prepared dataset, or raw files; standard input, a text a line, if none."),
    ] = None,
    split: Annotated[str, typer.Option(help="Of a dataset: test, valid or train.")] = "test",
    top: Annotated[int, typer.Option(help="Show so many labels, the likeliest first.")] = 1,
    at: Annotated[float | None, typer.Option(help="Show only labels that are at least so likely.")] = None,
    format: Format = "auto",  # noqa: A002
    text_field: TextField = None,
    threads: Threads = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Print the likeliest labels of every text with their probabilities, in the order of the input."""
    from manyhands.evaluate.predicting import lines
    from manyhands.evaluate.predicting import predict as score
    from manyhands.models.saving import load_classifier

    opened = load_classifier(bundle)
    reading = given(format=format, text_field=text_field)
    with watch() as progress:
        found = score(
            opened, sources or ["-"], split=split, threads=threads, reading=reading, progress=progress
        )
        for scores in found:
            for line in lines(opened, scores, top, at, as_json):
                typer.echo(line)
