"""``manyhands predict``: labels for texts, one line for each."""

from typing import Annotated, Any

import typer

from manyhands.cli.options import BundleArgument, Panel, Threads, add_verb
from manyhands.cli.progress import watch
from manyhands.settings import FileSettings


def add_to(app: typer.Typer, arguments: list[str]) -> None:
    add_verb(app, predict, [FileSettings], lambda: [Panel("Reading raw files", [FileSettings])])


def predict(
    bundle: BundleArgument,
    settings: dict[str, Any],
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="A prepared dataset, or raw files; by default standard input, one text per line."
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Split of a dataset: test (the default), valid or train.")
    ] = None,
    top: Annotated[int, typer.Option(help="Number of labels to show, most likely first.")] = 1,
    at: Annotated[float | None, typer.Option(help="Show only labels with at least this probability.")] = None,
    threads: Threads = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Print the most likely labels of every text with their probabilities, in the order of the input."""
    from manyhands.bundle.bundle import load_classifier
    from manyhands.evaluation.predict import lines
    from manyhands.evaluation.predict import predict as score

    opened = load_classifier(bundle)
    with watch() as progress:
        found = score(opened, sources or ["-"], split=split, threads=threads, progress=progress, **settings)
        for scores in found:
            for line in lines(opened, scores, top, at, as_json):
                typer.echo(line)
