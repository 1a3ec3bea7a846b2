"""``manyhands evaluate``: how good a model is, on rows with labels or at words."""

import json
from typing import Annotated, Any

import typer

from manyhands.cli.options import READING, AsJson, Memory, Threads, add_verb
from manyhands.cli.progress import watch
from manyhands.errors import UsageError
from manyhands.settings import ReadingSettings, option


def add_to(app: typer.Typer, arguments: list[str]) -> None:
    add_verb(app, evaluate, [ReadingSettings], lambda: [READING])


def _refuse(those: str, **options: Any) -> None:
    """What is for another kind of model must not be taken for done."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{option(name)} is for {those}")


def evaluate(
    bundle: Annotated[
        str, typer.Argument(help="Folder or URL of a bundle, or a file of word vectors.", show_default=False)
    ],
    settings: dict[str, Any],
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="A prepared dataset, or raw files with labels. For word vectors: the text they were trained "
            "on; by default the one that the bundle's record names.",
            show_default=False,
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Split of a dataset with labels: test (the default), valid or train.")
    ] = None,
    at: Annotated[
        float,
        typer.Option(help="Threshold for multi-label rows: predict labels with at least this probability."),
    ] = 0.5,
    top: Annotated[
        list[int] | None,
        typer.Option(help="Also show precision and recall of this many most likely labels; may be repeated."),
    ] = None,
    sets: Annotated[
        str | None,
        typer.Option(
            help="For word vectors: folder of similarity and analogy files; by default MANYHANDS_WORDSETS."
        ),
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            help="For classifiers: also tell from which probability on this share of the answers is right, "
            "and how many rows are then answered; predict takes it as --unsure."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="For classifiers: another bundle to compare with on the same rows, by a paired test. For "
            "word vectors: compute the PIP loss against these vectors, not against the text."
        ),
    ] = None,
    restrict: Annotated[
        int | None,
        typer.Option(
            help="For word vectors: search analogies among this many frequent words; by default 30,000."
        ),
    ] = None,
    memory: Memory = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a classifier or word vectors.

    Classifiers: accuracy and F1 with their 95 % intervals, calibration, precision and recall of every label,
    and the confusion matrix. Word vectors: the score on every similarity and analogy set found, and the PIP
    loss beside that of random vectors.
    """
    from manyhands.bundle.bundle import Bundle
    from manyhands.bundle.word_vectors import open_either
    from manyhands.cli.show import show_scores, show_words
    from manyhands.evaluation.evaluate import evaluate as judge
    from manyhands.evaluation.words import evaluate_words

    opened = open_either(bundle)
    means: dict[str, Any] = {"memory": memory, "threads": threads, **settings}
    if isinstance(opened, Bundle) and opened.labels:
        _refuse("word vectors", sets=sets, restrict=restrict)
        if not data:
            raise UsageError("give the rows to evaluate on: a prepared dataset, or raw files with labels")
        with watch() as progress:
            report = judge(
                opened,
                data,
                split=split,
                threshold=at,
                top=tuple(top or ()),
                precision=precision,
                against=against,
                progress=progress,
                **means,
            )
        if as_json:
            typer.echo(json.dumps(report.facts()))
        else:
            show_scores(report.facts())
        return
    _refuse("classifiers", top=top, split=split, precision=precision)
    asked = {"sets": sets, "against": against, "restrict": restrict}
    chosen: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    with watch() as progress:
        found = evaluate_words(opened, data or (), progress=progress, **chosen, **means)
    if as_json:
        typer.echo(json.dumps(found.facts()))
    else:
        show_words(found.facts(), str(found.folder), found.why)
