"""``manyhands evaluate``: how good a model is, on rows with labels or at words."""

import json
from typing import Annotated, Any

import typer

from manyhands.cli import show_scores, show_words
from manyhands.cli.options import (
    AsJson,
    Format,
    LabelChoice,
    LabelField,
    Memory,
    TextField,
    Threads,
    given,
)
from manyhands.cli.progress import watch
from manyhands.errors import UsageError


def add_to(app: typer.Typer) -> None:
    app.command("evaluate")(evaluate)


def refuse(those: str, **options: Any) -> None:
    """What is for another kind of model must not be taken for done."""
    for name in given(**options):
        raise UsageError(f"--{name} is for {those}")


def evaluate(
    bundle: Annotated[
        str, typer.Argument(help="Folder or URL of a bundle, or a file of word vectors.", show_default=False)
    ],
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="A prepared dataset, or raw files: rows with labels; of word vectors, the text they come "
            "from, which a bundle knows by itself.",
            show_default=False,
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Of a dataset with labels: test, valid or train.")] = "test",
    at: Annotated[
        float, typer.Option(help="Where rows have several labels: those at least so likely are predicted.")
    ] = 0.5,
    top: Annotated[
        list[int] | None, typer.Option(help="Also precision and recall of so many likeliest labels.")
    ] = None,
    sets: Annotated[
        str | None,
        typer.Option(
            help="Folder of similarity and analogy files, for word vectors; MANYHANDS_WORDSETS by default."
        ),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Other word vectors to compare with by PIP loss, not with the text.")
    ] = None,
    restrict: Annotated[
        int | None, typer.Option(help="Analogies are searched among so many frequent words: 30,000.")
    ] = None,
    format: Format = "auto",  # noqa: A002
    text_field: TextField = None,
    label_field: LabelField = None,
    labels: LabelChoice = None,
    memory: Memory = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Show how good a model is.

    Of labels: accuracy, F1, precision and recall of every label, and which are taken for which. Of words:
    every similarity and analogy set that is found, and the PIP loss beside that of random vectors.
    """
    from manyhands.evaluate.judging import evaluate as judge
    from manyhands.evaluate.words import evaluate_words
    from manyhands.models.bundle import Bundle
    from manyhands.models.opening import open_either

    opened = open_either(bundle)
    reading = given(format=format, text_field=text_field, label_field=label_field, labels=labels)
    means: dict[str, Any] = {"memory": memory, "threads": threads, "reading": reading}
    if isinstance(opened, Bundle) and opened.labels:
        refuse("word vectors", sets=sets, against=against, restrict=restrict)
        if not data:
            raise UsageError("name the rows to judge by: a prepared dataset, or raw files with labels")
        with watch() as progress:
            report = judge(
                opened, data, split=split, threshold=at, top=tuple(top or ()), progress=progress, **means
            )
        typer.echo(json.dumps(report.facts())) if as_json else show_scores.show(report.facts())
        return
    refuse("models of labels", top=top)
    chosen = given(sets=sets, against=against, restrict=restrict)
    with watch() as progress:
        found = evaluate_words(opened, data or (), progress=progress, **chosen, **means)
    if as_json:
        typer.echo(json.dumps(found.facts()))
    else:
        show_words.show(found.facts(), str(found.folder), found.why)
