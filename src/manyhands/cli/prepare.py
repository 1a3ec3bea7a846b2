"""``manyhands prepare``: raw reviews to a dataset."""

import json
from typing import Annotated, Any

import typer

from manyhands.cli.progress import watch
from manyhands.cli.show import describe

Sources = Annotated[
    list[str],
    typer.Argument(help="Files, folders, globs or URLs (s3://…); - is standard input.", show_default=False),
]
Out = Annotated[str, typer.Option(help="Folder or URL that the dataset becomes.", show_default=False)]


def add_to(app: typer.Typer) -> None:
    app.command("prepare")(prepare)


def prepare(
    sources: Sources,
    out: Out,
    format: Annotated[  # noqa: A002
        str, typer.Option(help="jsonl, csv, yelp, labelled, text, parquet or arrow; found by itself.")
    ] = "auto",
    text_field: Annotated[str | None, typer.Option(help="Field or column that holds the text.")] = None,
    label_field: Annotated[str | None, typer.Option(help="Field or column that holds the label.")] = None,
    weight_field: Annotated[str | None, typer.Option(help="Field or column that holds a weight.")] = None,
    labels: Annotated[
        str,
        typer.Option(
            help="polarity (1-3 negative, 4-5 positive), polarity-strict (3 left out), stars (five classes), "
            "as-is (any names, several a row), none; auto takes polarity for stars, else as-is."
        ),
    ] = "auto",
    valid_files: Annotated[
        list[str] | None, typer.Option("--valid-file", help="File or glob whose rows are for validation.")
    ] = None,
    test_files: Annotated[
        list[str] | None, typer.Option("--test-file", help="File or glob whose rows are for the test.")
    ] = None,
    valid: Annotated[float, typer.Option(help="Share of the rows for validation, drawn by text.")] = 0.1,
    test: Annotated[float, typer.Option(help="Share of the rows for the test, drawn by text.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
    deduplicate: Annotated[
        bool, typer.Option("--deduplicate/--keep-duplicates", help="Make one row of equal texts.")
    ] = True,
    vocabulary: Annotated[int, typer.Option(help="Keep so many words, the most frequent.")] = 1_000_000,
    min_count: Annotated[int, typer.Option(help="Keep words that stand so often in the training rows.")] = 1,
    lower: Annotated[bool, typer.Option("--lower/--keep-case", help="Make all letters small.")] = True,
    punctuation: Annotated[str, typer.Option(help="token: a token of its own; drop: a gap.")] = "token",
    html: Annotated[
        bool, typer.Option("--html/--no-html", help="Read &amp; and <br /> as what they mean.")
    ] = True,
    max_rejected: Annotated[
        float, typer.Option(help="Stop if a larger share of the rows is of no use.")
    ] = 0.01,
    engine: Annotated[
        str, typer.Option(help="local: the cores of this machine; spark: those of a cluster. Same dataset.")
    ] = "local",
    master: Annotated[
        str | None, typer.Option(help="Spark's master: spark://host:7077, yarn, or local[*], the default.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(help="In how many pieces Spark does the work; chosen by size.")
    ] = None,
    spark_conf: Annotated[
        list[str] | None, typer.Option(help="A setting of Spark, like spark.executor.memory=4g.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory to use, like 4GB; half the machine's by default.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads to use; all cores by default.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a dataset that is there already.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Turn raw reviews into a dataset: read, normalise, de-duplicate, split, number words, store."""
    from manyhands.data.prepare import prepare as make

    settings: dict[str, Any] = {
        "format": format,
        "text_field": text_field,
        "label_field": label_field,
        "weight_field": weight_field,
        "labels": labels,
        "deduplicate": deduplicate,
        "vocabulary": vocabulary,
        "min_count": min_count,
        "valid": valid,
        "test": test,
        "seed": seed,
        "max_rejected": max_rejected,
        "text": {"lower": lower, "punctuation": punctuation, "html": html},
    }
    with watch() as progress:
        dataset = make(
            sources,
            out,
            valid_files=valid_files or (),
            test_files=test_files or (),
            engine=engine,  # type: ignore[arg-type]
            master=master,
            partitions=partitions,
            spark_conf=spark_conf or (),
            overwrite=overwrite,
            memory=memory,
            threads=threads,
            progress=progress,
            **settings,
        )
    if as_json:
        typer.echo(json.dumps(dataset.manifest.model_dump()))
    else:
        describe(dataset, length=100)
