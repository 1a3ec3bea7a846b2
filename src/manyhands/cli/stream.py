"""``manyhands stream``: a stream of messages to a model that learns as they come."""

import json
from typing import Annotated, Any

import typer

from manyhands.catalog import LEARNERS, STREAM_LEARNERS, STREAMS, load
from manyhands.cli import interrupt
from manyhands.cli.options import (
    READING,
    RUN,
    AsJson,
    CommonPanel,
    Memory,
    Overwrite,
    Panel,
    Threads,
    add_verb,
    value_of,
)
from manyhands.cli.progress import watch
from manyhands.errors import ResumableError
from manyhands.settings import ReadingSettings, Settings
from manyhands.streaming.job import crew_of, stream_crews, whose_setting
from manyhands.streaming.settings import StreamingSettings

MODEL, SPREAD = "ngrams", "single"


def add_to(app: typer.Typer, arguments: list[str]) -> None:
    """The options are those of the chosen model and spread; ``--help`` shows those of all."""
    chosen = load(STREAM_LEARNERS, "model", value_of("--model", arguments, MODEL))
    crew = crew_of(value_of("--spread", arguments, SPREAD))
    kinds = [chosen.Settings, StreamingSettings, ReadingSettings, crew.Settings]
    add_verb(app, stream, kinds, panels, chosen.without)


def explain_option(flag: str, arguments: list[str]) -> str:
    """Whose option it is, if another model or spread has it."""
    model, spread = value_of("--model", arguments, MODEL), value_of("--spread", arguments, SPREAD)
    return whose_setting(flag.lstrip("-").replace("-", "_"), model, spread)


def panels() -> list[Panel]:
    learners = {name: load(STREAM_LEARNERS, "model", name) for name in STREAM_LEARNERS}
    crews = stream_crews()
    every: list[type[Settings]] = [
        *(learner.Settings for learner in learners.values()),
        *(crew.Settings for crew in crews.values()),
    ]
    return [
        CommonPanel([*every, StreamingSettings], {"epochs"}),
        Panel("Stream", [StreamingSettings]),
        READING,
        *(
            Panel(
                f"--model {name}: {load(LEARNERS, 'model', name).summary}",
                [learner.Settings],
                learner.without,
            )
            for name, learner in learners.items()
        ),
        *(Panel(f"--spread {name}: {crew.summary}", [crew.Settings]) for name, crew in crews.items()),
    ]


def stream(
    url: Annotated[
        str, typer.Argument(help=f"Stream to learn from: {', '.join(STREAMS)}.", show_default=False)
    ],
    out: Annotated[str, typer.Option(help="Folder or URL of the model.", show_default=False)],
    settings: dict[str, Any],
    model: Annotated[
        str, typer.Option(help=f"Model to train: {', '.join(STREAM_LEARNERS)}; each has a panel below.")
    ] = MODEL,
    spread: Annotated[
        str,
        typer.Option(help="How the work is shared; those that can learn from streams have a panel below."),
    ] = SPREAD,
    minutes: Annotated[float | None, typer.Option(help="End after this many minutes.")] = None,
    messages: Annotated[
        int | None, typer.Option(help="End when this many messages have been read in all.")
    ] = None,
    evaluate_every: Annotated[
        str | None, typer.Option(help="Evaluate this often, like 60s or 5m.", rich_help_panel=RUN)
    ] = None,
    evaluate_on: Annotated[
        str | None,
        typer.Option(
            help="What to evaluate on: rows with labels, or for word vectors a folder of similarity sets.",
            rich_help_panel=RUN,
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
    """Learn from a stream of messages without end.

    The model at --out is replaced whole at every snapshot. Repeat the command to go on from the last one.
    """
    from manyhands.machine import parse_seconds
    from manyhands.streaming.stream import stream as learn

    try:
        with watch() as progress:
            streamed = learn(
                url,
                out,
                model=model,
                spread=spread,
                minutes=minutes,
                messages=messages,
                evaluate_every=None if evaluate_every is None else parse_seconds(evaluate_every),
                evaluate_on=evaluate_on,
                track=track,
                overwrite=overwrite,
                memory=memory,
                threads=threads,
                progress=progress,
                **settings,
            )
    except interrupt.Interrupt:
        raise ResumableError("interrupted; to go on, repeat the command: it can be resumed") from None
    if as_json:
        typer.echo(json.dumps(streamed.record))
    else:
        from manyhands.cli.show import show_stream

        show_stream(out, streamed.record)
