"""``manyhands train``: a dataset, or raw reviews, to a trained model."""

import json
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from manyhands.catalog import LEARNERS, SPREADS, load
from manyhands.cli import interrupt
from manyhands.cli.options import (
    READING,
    RUN,
    AsJson,
    BundleOut,
    CommonPanel,
    Memory,
    Overwrite,
    Panel,
    Threads,
    add_verb,
    value_of,
)
from manyhands.cli.progress import watch
from manyhands.errors import UsageError
from manyhands.settings import ReadingSettings, TrainingSettings
from manyhands.storage.destination import MARKERS

MODEL, SPREAD = "ngrams", "single"
Data = Annotated[
    list[str],
    typer.Argument(
        help="A prepared dataset, or raw files; all rows of raw files are trained on.", show_default=False
    ),
]
Model = Annotated[str, typer.Option(help=f"Model to train: {', '.join(LEARNERS)}; each has a panel below.")]


def add_to(app: typer.Typer, arguments: list[str]) -> None:
    """The options are those of the chosen model and spread; ``--help`` shows those of all."""
    model, spread = value_of("--model", arguments, MODEL), value_of("--spread", arguments, SPREAD)
    chosen, shared = load(LEARNERS, "model", model), load(SPREADS, "spread", spread)
    add_verb(app, train, [chosen.Settings, TrainingSettings, ReadingSettings, shared.Settings], panels)


def explain_option(flag: str, arguments: list[str]) -> str:
    """Whose option it is, if another model or spread has it."""
    from manyhands.training.job import whose_setting

    model, spread = value_of("--model", arguments, MODEL), value_of("--spread", arguments, SPREAD)
    return whose_setting(flag.lstrip("-").replace("-", "_"), model, spread)


def panels(some_spreads: Iterable[str] = SPREADS, leave_out: Container[str] = ()) -> list[Panel]:
    """The settings of all models and of some spreads, without those that a verb decides itself."""
    models = {f"--model {name}": load(LEARNERS, "model", name) for name in LEARNERS}
    spreads = {f"--spread {name}": load(SPREADS, "spread", name) for name in some_spreads}
    choices = {**models, **spreads}
    return [
        CommonPanel([*(choice.Settings for choice in choices.values()), TrainingSettings], leave_out),
        Panel("Training", [TrainingSettings], leave_out),
        READING,
        *(
            Panel(f"{name}: {choice.summary}", [choice.Settings], leave_out)
            for name, choice in choices.items()
        ),
    ]


def train(
    data: Data,
    out: BundleOut,
    settings: dict[str, Any],
    model: Model = MODEL,
    spread: Annotated[
        str,
        typer.Option(help=f"How the work is shared: {', '.join(SPREADS)}; each has a panel below."),
    ] = SPREAD,
    unlabelled: Annotated[
        list[str] | None,
        typer.Option(
            help="Files of any format, or a dataset, whose texts a classifier learns from as well; "
            "labels there are not looked at. Can be given several times.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue an interrupted run: repeat its command with this option."),
    ] = False,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            help="Folder or URL to keep checkpoints in; by default they stand beside --out.",
            rich_help_panel=RUN,
        ),
    ] = None,
    continue_from: Annotated[
        str | None,
        typer.Option(
            help="Bundle whose training to continue; new words and labels are added.", rich_help_panel=RUN
        ),
    ] = None,
    track: Annotated[
        str | None,
        typer.Option(help="Also write event files for this tool: tensorboard.", rich_help_panel=RUN),
    ] = None,
    memory: Memory = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Train a classifier or word vectors.

    Validates after each epoch, keeps the best weights, and writes them with a record of the run.
    """
    from manyhands.engines.crew import inside
    from manyhands.run.train import train as run
    from manyhands.training.checkpoint import can_resume, checkpoint_folder

    # Of a crew, another machine may have the checkpoint.
    if resume and "rendezvous" not in settings and not can_resume(out, checkpoints):
        if not overwrite and Path(out, MARKERS["bundle"]).is_file():
            raise UsageError(f"{out} is finished: there is nothing to resume")
        typer.echo(f"no checkpoint for {out}; training from the start", err=True)
    advice = load(SPREADS, "spread", spread)().advice(data, settings)
    if advice:
        typer.echo(advice, err=True)
    with interrupt.resumable(checkpoint_folder(out, checkpoints)), watch() as progress:
        trained = run(
            data,
            out,
            model=model,
            spread=spread,
            resume=resume,
            checkpoints=checkpoints,
            continue_from=continue_from,
            track=track,
            overwrite=overwrite,
            unlabelled=unlabelled or (),
            memory=memory,
            threads=threads,
            progress=progress,
            paid_since=interrupt.started(),
            **settings,
        )
    if trained is None:
        if not inside():
            typer.echo(f"trained; worker 0 wrote {out} on another machine")
    elif as_json:
        typer.echo(json.dumps(trained.record))
    else:
        _print_summary(out, trained.record)


def _print_summary(out: str, record: dict[str, Any]) -> None:
    from manyhands.training.money import dollars

    scores, data, settings = record["scores"], record["data"], record["settings"]
    turn = load(SPREADS, "spread", record["spread"]).turn
    ran, planned = len(scores["train"]), settings[f"{turn}s"]  # None where the spread chose it
    stopped = " (early stopping)" if planned and ran < planned else ""
    turns = f"{ran} of {planned} {turn}s" if planned else f"{ran} {turn}s"
    loss = scores["train"][scores.get("best_epoch", ran) - 1]["loss"]
    typer.echo(
        f"{out}: {record['model']}, {data['rows']:,} rows in {record['seconds']:.1f} s, "
        f"{turns}{stopped}, loss {loss:.4f}"
    )
    if "price" in record:
        price = record["price"]
        typer.echo(f"cost: {dollars(price['total'])}, at {dollars(price['per_hour'])} an hour")
    if data["left_out"]:
        typer.echo(f"{data['left_out']:,} rows without a usable text or label were left out")
    if "unlabelled" in record:
        typer.echo(_unlabelled(record["unlabelled"]))
    if "best_epoch" in scores:
        best = scores["valid"][scores["best_epoch"] - 1]
        typer.echo(f"validation: {_summary(best)} after the best {turn}, {scores['best_epoch']}")
    if record.get("calibration", {}).get("method", "none") != "none":
        found = record["calibration"]
        typer.echo(
            f"calibrated by {found['method']} on {found['rows']:,} rows held out: calibration error "
            f"{found['ece_before']:.4f} before, {found['ece_after']:.4f} after"
        )
    if "test" in scores:
        typer.echo(f"test: {_summary(scores['test'])} on {scores['test']['rows']:,} rows")


def _unlabelled(found: dict[str, Any]) -> str:
    used = "used" if found["used"] else "not used"
    if "held_out" not in found:
        return f"unlabelled: {found['rows']:,} texts, {used}: too few labelled rows"
    accuracy = {name: found["held_out"][name]["accuracy"] for name in ("with", "without")}
    return (
        f"unlabelled: {found['rows']:,} texts, {used}: held-out accuracy {accuracy['with']:.4f} with them, "
        f"{accuracy['without']:.4f} without"
    )


def _summary(scores: dict[str, Any]) -> str:
    if "log_likelihood" in scores:
        return f"loss {-scores['log_likelihood']:.4f}"
    return f"accuracy {scores['accuracy']:.4f}, macro F1 {scores['macro_f1']:.4f}"
