"""``manyhands predict``: labels for texts, one line for each; or whole files with labels added."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyhands.cli import interrupt
from manyhands.cli.options import BundleArgument, Memory, Overwrite, Panel, Threads, add_verb
from manyhands.cli.progress import watch
from manyhands.errors import ResumableError, UsageError
from manyhands.settings import FileSettings

if TYPE_CHECKING:
    from manyhands.evaluation.predict import Shown


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
    out: Annotated[
        str | None,
        typer.Option(
            help="Write whole files here, in their own format, with the columns predicted_label and "
            "predicted_probability added: a file for one input file, else a folder or URL. A run that was "
            "stopped is resumed by running it again."
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Split of a dataset: test (the default), valid or train.")
    ] = None,
    top: Annotated[int, typer.Option(help="Number of labels to show, most likely first.")] = 1,
    at: Annotated[float | None, typer.Option(help="Show only labels with at least this probability.")] = None,
    unsure: Annotated[
        float | None,
        typer.Option(help="Answer 'unsure' where the likeliest label is less probable than this."),
    ] = None,
    memory: Memory = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line; with --out, one in all.")
    ] = False,
) -> None:
    """Print the most likely labels of every text with their probabilities, in the order of the input.

    With --out, write whole files instead: every row and column of the input stays, in its order and format,
    compressed as the name says. A row without text, or one that cannot be read, has an empty label.
    """
    from manyhands.bundle.bundle import load_classifier
    from manyhands.evaluation.predict import Shown

    opened = load_classifier(bundle)
    if out is None:
        if overwrite or memory is not None:
            raise UsageError("--overwrite and --memory are for --out")
        _print(opened, sources, split, Shown(top, at, unsure), threads, as_json, settings)
        return
    if split is not None or top != 1 or at is not None:
        raise UsageError("--split, --top and --at do not go with --out, which writes the likeliest label")
    _write(
        opened,
        sources,
        out,
        {"overwrite": overwrite, "memory": memory, "threads": threads, "unsure": unsure},
        as_json,
        settings,
    )


def _print(
    opened: Any,
    sources: list[str] | None,
    split: str | None,
    shown: "Shown",
    threads: int | None,
    as_json: bool,
    settings: dict[str, Any],
) -> None:
    from manyhands.evaluation.predict import lines
    from manyhands.evaluation.predict import predict as score

    with watch() as progress:
        found = score(opened, sources or ["-"], split=split, threads=threads, progress=progress, **settings)
        for scores in found:
            for line in lines(opened, scores, shown, as_json):
                typer.echo(line)


def _write(
    opened: Any,
    sources: list[str] | None,
    out: str,
    run: dict[str, Any],
    as_json: bool,
    settings: dict[str, Any],
) -> None:
    from manyhands.scoring.folder import is_unfinished
    from manyhands.scoring.score import score_files

    try:
        with watch() as progress:
            scored = score_files(opened, sources or ["-"], out, progress=progress, **run, **settings)
    except interrupt.Interrupt:
        if not is_unfinished(out):
            raise
        raise ResumableError("interrupted; to continue, repeat the command") from None
    facts = scored.facts()
    if as_json:
        typer.echo(json.dumps(facts))
        return
    ledger, columns = facts["ledger"], ", ".join(facts["columns"])
    typer.echo(f"{out}: {ledger['read']:,} rows of {facts['files']:,} files, with {columns}")
    typer.echo(f"scored {ledger['scored']:,}, empty {ledger['empty']:,}, rejected {ledger['rejected']:,}")
    if facts["resumed_files"]:
        typer.echo(f"{facts['resumed_files']:,} files were done by an earlier run", err=True)
    for part in scored.parts:
        for rejection in part.rejections[:1]:
            typer.echo(f"rejected: {part.input} {rejection}", err=True)
