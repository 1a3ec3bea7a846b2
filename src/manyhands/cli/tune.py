"""``manyhands tune``: search for the settings that do best on the validation rows."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from manyhands.cli.progress import watch

if TYPE_CHECKING:
    from manyhands.spread.tuning import Tuned

SHOWN_TRIALS = 10


def add_to(app: typer.Typer) -> None:
    app.command("tune")(tune)


def tune(
    data: Annotated[str, typer.Argument(help="Folder or URL of a prepared dataset.", show_default=False)],
    minutes: Annotated[float, typer.Option(help="Begin no trial after so many minutes.")] = 5.0,
    model: Annotated[str, typer.Option(help="ngrams or fasttext.")] = "ngrams",
    size: Annotated[
        str | None, typer.Option(help="Judge models quantised to this size, like 2MB; write such a one.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="Folder or URL that the best model becomes; none by default.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Stop when there are so many, those of earlier runs included.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the search and of training.")] = 0,
    ngrams: Annotated[int | None, typer.Option(help="Use this, and do not search it.")] = None,
    rate: Annotated[float | None, typer.Option(help="Use this, and do not search it.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Use this, and do not search it.")] = None,
    min_count: Annotated[int | None, typer.Option(help="Use this, and do not search it.")] = None,
    dim: Annotated[int | None, typer.Option(help="Use this, and do not search it.")] = None,
    chars: Annotated[str | None, typer.Option(help="Runs of so many letters as well, like 3-5.")] = None,
    buckets: Annotated[int | None, typer.Option(help="Slots for n-grams, at most.")] = None,
    loss: Annotated[str | None, typer.Option(help="Found by itself; as for train.")] = None,
    class_weights: Annotated[str | None, typer.Option(help="none or balanced.")] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Learn on one thread: the same outcome every time.")
    ] = False,
    memory: Annotated[
        str | None, typer.Option(help="Memory to use, like 4GB; half the machine's by default.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads to use; all cores by default.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a bundle that is there already.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Search for the settings that do best on the validation rows, and train with them.

    The same command goes on from the trials that it finished before. Test rows take no part.
    """
    from manyhands.spread.tuning import tune as search

    given: dict[str, Any] = {
        "ngrams": ngrams,
        "rate": rate,
        "epochs": epochs,
        "min_count": min_count,
        "dim": dim,
        "chars": chars,
        "buckets": buckets,
        "loss": loss,
        "class_weights": class_weights,
        "deterministic": deterministic or None,
    }
    with watch() as progress:
        tuned = search(
            data,
            minutes=minutes,
            model=model,
            size=size,
            out=out,
            trials=trials,
            seed=seed,
            memory=memory,
            threads=threads,
            overwrite=overwrite,
            progress=progress,
            **{name: value for name, value in given.items() if value is not None},
        )
    if as_json:
        typer.echo(json.dumps(tuned.facts()))
    else:
        _show(tuned, data)


def _show(tuned: "Tuned", data: str) -> None:
    console = Console(highlight=False, markup=False)
    by_default = f", {tuned.default_score:.4f} by default" if tuned.default_score is not None else ""
    console.print(
        f"best validation {tuned.measure.replace('_', ' ')} of {len(tuned.trials):,} trials: "
        f"{tuned.score:.4f}{by_default}",
        soft_wrap=True,
    )
    console.print(_table(tuned))
    console.print(
        f"{tuned.valid_rows:,} validation rows: differences below {tuned.chance:.4f} may be chance",
        soft_wrap=True,
    )
    if tuned.bundle is not None:
        console.print(f"{tuned.bundle.folder}: trained with the best settings", soft_wrap=True)
        return
    options = " ".join(_option(name, value) for name, value in tuned.settings.items())
    console.print(
        f"train with: manyhands train {data} --out … --model {tuned.model} {options}", soft_wrap=True
    )


def _option(name: str, value: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    return flag if value is True else f"{flag} {value}"


def _table(tuned: "Tuned") -> Table:
    """The best trials, and what failed."""
    names = list(tuned.trials[0].settings)
    table = Table("score", *(name.replace("_", " ") for name in names), "s", box=None, pad_edge=False)
    for column in table.columns:
        column.justify = "right"
    ranked = sorted(tuned.trials, key=lambda trial: 1.0 if trial.score is None else -trial.score)
    for trial in ranked[:SHOWN_TRIALS]:
        score = "failed" if trial.score is None else f"{trial.score:.4f}"
        table.add_row(score, *(str(trial.settings[name]) for name in names), f"{trial.seconds:.1f}")
    if len(ranked) > SHOWN_TRIALS:
        table.add_row("…", *[""] * len(names), "")
    return table
