"""``manyhands tune``: search for the settings that do best on the validation rows."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyhands.catalog import LEARNERS, load
from manyhands.cli.options import READING, AsJson, Memory, Overwrite, Panel, Threads, add_verb, value_of
from manyhands.cli.progress import watch
from manyhands.settings import ReadingSettings, Settings, TrainingSettings, option
from manyhands.tuning.search import tunable

if TYPE_CHECKING:
    from rich.table import Table

    from manyhands.tuning.tune import Tuned

MODEL = "ngrams"
SHOWN_TRIALS = 10
MONEY = ("price", "budget")  # of one run; a search ends by --minutes


def add_to(app: typer.Typer, arguments: list[str]) -> None:
    model = value_of("--model", arguments, MODEL)
    kind: type[Settings] = load(LEARNERS, "model", model).Settings

    def panels() -> list[Panel]:
        return [
            Panel(f"Settings of {model}; a setting given here is not searched", [kind]),
            Panel("Training", [TrainingSettings], MONEY),
            READING,
        ]

    add_verb(app, tune, [kind, TrainingSettings, ReadingSettings], panels, MONEY)


def tune(
    data: Annotated[
        list[str],
        typer.Argument(
            help="A prepared dataset with validation rows, or raw files: a tenth of their rows is then held "
            "out to choose by, and the best settings are trained on all.",
            show_default=False,
        ),
    ],
    settings: dict[str, Any],
    minutes: Annotated[float, typer.Option(help="Start no new trial after this many minutes.")] = 5.0,
    model: Annotated[str, typer.Option(help=f"Model to tune: {' or '.join(tunable())}.")] = MODEL,
    size: Annotated[
        str | None,
        typer.Option(help="Quantise each model to this size, like 2MB, before it is compared or written."),
    ] = None,
    sets: Annotated[
        str | None,
        typer.Option(
            help="For word vectors: judge by the similarity files in this folder, and search also what "
            "decides about windows and words; by default by the likelihood of the validation rows."
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(help="Folder or URL to write the best model to; by default only print its settings."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Stop after this many trials, including those of earlier runs.")
    ] = None,
    memory: Memory = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Search for the settings with the best validation score, and train with them.

    Repeating the command continues the search. The search does not use test rows.
    """
    from manyhands.tuning.tune import tune as search

    with watch() as progress:
        tuned = search(
            data,
            minutes=minutes,
            model=model,
            size=size,
            sets=sets,
            out=out,
            trials=trials,
            memory=memory,
            threads=threads,
            overwrite=overwrite,
            progress=progress,
            **settings,
        )
    if as_json:
        typer.echo(json.dumps(tuned.facts()))
    else:
        _show(tuned, data)


def _show(tuned: "Tuned", data: list[str]) -> None:
    from rich.console import Console

    by_default = f", {tuned.default_score:.4f} by default" if tuned.default_score is not None else ""
    measure = tuned.measure.replace("_", " ")
    typer.echo(f"best validation {measure} of {len(tuned.trials):,} trials: {tuned.score:.4f}{by_default}")
    Console(highlight=False, markup=False).print(_table(tuned))
    if tuned.chance is not None:
        typer.echo(
            f"{tuned.valid_rows:,} validation rows: differences below {tuned.chance:.4f} may be chance"
        )
    if tuned.bundle is not None:
        typer.echo(f"{tuned.bundle.folder}: trained with the best settings")
        return
    given = tuned.settings.items()
    options = " ".join(option(name) + ("" if value is True else f" {value}") for name, value in given)
    typer.echo(f"train with: manyhands train {' '.join(data)} --out … --model {tuned.model} {options}")


def _table(tuned: "Tuned") -> "Table":
    """The best trials, and what failed."""
    from rich.table import Table

    from manyhands.training.state import worth

    names = list(tuned.trials[0].settings)
    table = Table("score", *(name.replace("_", " ") for name in names), "s", box=None, pad_edge=False)
    for column in table.columns:
        column.justify = "right"
    ranked = sorted(tuned.trials, key=lambda trial: -worth({tuned.measure: trial.score}, tuned.measure))
    for trial in ranked[:SHOWN_TRIALS]:
        score = "failed" if trial.score is None else f"{trial.score:.4f}"
        table.add_row(score, *(str(trial.settings[name]) for name in names), f"{trial.seconds:.1f}")
    if len(ranked) > SHOWN_TRIALS:
        table.add_row("…", *[""] * len(names), "")
    return table
