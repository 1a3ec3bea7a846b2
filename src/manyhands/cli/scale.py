"""``manyhands scale``: a scaling study."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyhands.catalog import LEARNERS, SPREADS, load
from manyhands.cli import interrupt
from manyhands.cli.options import RUN, AsJson, Memory, add_verb, value_of
from manyhands.cli.progress import watch
from manyhands.cli.train import MODEL, Data, Model, panels
from manyhands.errors import ResumableError, UsageError
from manyhands.report.shown import amount
from manyhands.scaling.scale import scalable
from manyhands.settings import ReadingSettings, TrainingSettings, option

if TYPE_CHECKING:
    from manyhands.report.scaling import Point
    from manyhands.scaling.study import Study

SPREAD = "allreduce"


def add_to(app: typer.Typer, arguments: list[str]) -> None:
    """The options of ``train``, save those that say how many workers there are."""
    model, spread = value_of("--model", arguments, MODEL), value_of("--spread", arguments, SPREAD)
    chosen, shared = load(LEARNERS, "model", model), load(SPREADS, "spread", spread)
    kinds = [chosen.Settings, TrainingSettings, ReadingSettings, shared.Settings]
    counts = _counts()
    decided = counts | {"budget"}  # a study is no use without one of its runs
    add_verb(app, scale, kinds, lambda: panels(scalable(), decided), decided)


def explain_option(flag: str, arguments: list[str]) -> str:
    """Whose option it is, if another model or spread has it."""
    from manyhands.training.job import whose_setting

    if flag in map(option, _counts()):
        return f"{flag} is not for scale: --workers lists how many workers there are"
    model, spread = value_of("--model", arguments, MODEL), value_of("--spread", arguments, SPREAD)
    return whose_setting(flag.lstrip("-").replace("-", "_"), model, spread)


def _counts() -> set[str]:
    return {load(SPREADS, "spread", name).counts for name in scalable()}


def scale(
    data: Data,
    out: Annotated[str, typer.Option(help="Folder to write the runs and the study to.", show_default=False)],
    workers: Annotated[
        str,
        typer.Option(help="Numbers of workers to compare, smallest first, like 1,2,4.", show_default=False),
    ],
    settings: dict[str, Any],
    weak: Annotated[
        bool,
        typer.Option(
            "--weak/--strong",
            help="Weak: the rows grow with the workers. Strong: the same rows for any number of workers.",
        ),
    ] = False,
    model: Model = MODEL,
    spread: Annotated[
        str,
        typer.Option(
            help=f"How the work is shared: {' or '.join(scalable())}. 1 worker is one process (single)."
        ),
    ] = SPREAD,
    repeats: Annotated[
        int,
        typer.Option(
            help="Runs for each number of workers, with different seeds: best time and mean score count."
        ),
    ] = 1,
    memory: Memory = None,
    threads: Annotated[int, typer.Option(help="Threads of each worker.", rich_help_panel=RUN)] = 1,
    as_json: AsJson = False,
) -> None:
    """Train the same job with different numbers of workers, and compare them.

    Writes a run folder for each run, study.json and study.svg. Repeating the command continues the study:
    runs that are complete are kept.
    """
    from manyhands.scaling.scale import scale as run

    try:
        with watch() as progress:
            study = run(
                data,
                out,
                workers=_numbers(workers),
                model=model,
                spread=spread,
                weak=weak,
                repeats=repeats,
                memory=memory,
                threads=threads,
                progress=progress,
                **settings,
            )
    except interrupt.Interrupt:
        raise ResumableError("interrupted; to continue, repeat the command") from None
    if study.kept:
        said = f"{study.kept} of {len(study.runs)} runs were complete already, and were not repeated"
        typer.echo(said, err=True)
    if as_json:
        typer.echo(json.dumps(study.facts()))
    else:
        _show(study)


def _numbers(workers: str) -> list[int]:
    try:
        return [int(number) for number in workers.split(",")]
    except ValueError:
        raise UsageError(f"--workers must be whole numbers, like 1,2,4, not '{workers}'") from None


def _show(study: "Study") -> None:
    from manyhands.cli.figures import print_figures

    points, job = study.points, study.job
    rows = f"{points[0].rows:,} to {points[-1].rows:,}" if job["scaling"] == "weak" else f"{points[0].rows:,}"
    each = "1 thread" if job["threads"] == 1 else f"{job['threads']} threads"
    typer.echo(f"{study.folder}: {study.title}, {rows} rows, {each} for each worker")
    heads = ["workers", "seconds", "learning", f"{study.unit}/s", "speed-up", "efficiency", "sent/worker"]
    heads += ["waiting", study.runs[0].measure or "score", "difference"]
    print_figures(heads, [_row(point) for point in points])
    first = points[0].workers
    baseline = "1 worker: one process (single)" if first == 1 else f"{first} workers"
    typer.echo(f"speed-up: by {study.unit}/s while learning, relative to {baseline}")
    if points[-1].workers * job["threads"] > job["cores"]:
        typer.echo(f"this machine has {job['cores']} cores; more workers than that share them")


def _row(point: "Point") -> list[str]:
    judged = ["-", "-"]
    if point.score is not None and point.score_difference is not None:
        judged = [f"{point.score:.4f}", f"{point.score_difference:+.4f}"]
    return [
        str(point.workers),
        f"{point.seconds:.1f} s",
        f"{point.learning_seconds:.2f} s",
        f"{point.rate:,.0f}",
        f"{point.speedup:.2f}",
        f"{point.efficiency:.0%}",
        amount(point.bytes_per_worker, "B"),
        f"{point.wait_seconds:.2f} s",
        *judged,
    ]
