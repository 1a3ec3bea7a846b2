"""``manyhands prepare``: raw reviews to a dataset."""

import json
from typing import Annotated, Any

import typer

from manyhands.cli.options import AsJson, Memory, Overwrite, Panel, Threads, add_verb
from manyhands.cli.progress import watch
from manyhands.engines.spark import SparkSettings
from manyhands.settings import PrepareSettings, ReadingSettings, TextSettings

Sources = Annotated[
    list[str],
    typer.Argument(help="Files, folders, globs or URLs (s3://…); - is standard input.", show_default=False),
]
Out = Annotated[str, typer.Option(help="Folder or URL to write the dataset to.", show_default=False)]


def add_to(app: typer.Typer, arguments: list[str]) -> None:
    add_verb(app, prepare, [PrepareSettings, TextSettings, SparkSettings], _panels)


def _panels() -> list[Panel]:
    return [
        Panel("Reading", [ReadingSettings]),
        Panel("Text", [TextSettings]),
        Panel("Dataset", [PrepareSettings], leave_out=ReadingSettings.model_fields),
        Panel("Spark", [SparkSettings]),
    ]


def prepare(
    sources: Sources,
    out: Out,
    settings: dict[str, Any],
    valid_files: Annotated[
        list[str] | None, typer.Option("--valid-file", help="File or glob with the validation rows.")
    ] = None,
    test_files: Annotated[
        list[str] | None, typer.Option("--test-file", help="File or glob with the test rows.")
    ] = None,
    engine: Annotated[
        str,
        typer.Option(help="local (the cores of this machine) or spark (a cluster); the dataset is the same."),
    ] = "local",
    partitions: Annotated[
        int | None,
        typer.Option(help="Number of Spark partitions; by default it depends on the size of the input."),
    ] = None,
    memory: Memory = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Turn raw reviews into a dataset: read, normalise, de-duplicate, split, build the vocabulary, store."""
    from manyhands.data.prepare.prepare import prepare as make

    text = {name: settings.pop(name) for name in TextSettings.model_fields if name in settings}
    with watch() as progress:
        dataset = make(
            sources,
            out,
            valid_files=valid_files or (),
            test_files=test_files or (),
            engine=engine,  # type: ignore[arg-type]
            partitions=partitions,
            overwrite=overwrite,
            memory=memory,
            threads=threads,
            progress=progress,
            text=TextSettings.create(**text),
            **settings,
        )
    if as_json:
        typer.echo(json.dumps(dataset.manifest.model_dump()))
    else:
        from manyhands.cli.show import show_dataset
        from manyhands.data.describe import describe_dataset

        show_dataset(describe_dataset(dataset))
