"""``manyhands embed``: vectors of texts."""

from typing import Annotated, Any

import typer

from manyhands.cli.options import Overwrite, Panel, Threads, VectorsArgument, add_verb
from manyhands.cli.progress import watch
from manyhands.errors import UsageError
from manyhands.settings import FileSettings


def add_to(app: typer.Typer, arguments: list[str]) -> None:
    add_verb(app, embed, [FileSettings], lambda: [Panel("Reading raw files", [FileSettings])])


def embed(
    vectors: VectorsArgument,
    settings: dict[str, Any],
    sources: Annotated[
        list[str] | None,
        typer.Argument(help="Raw files; by default standard input, one text per line."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(help="File or URL to write: .npy, .parquet or .csv; by default they are printed."),
    ] = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
) -> None:
    """Make a vector of every text, in the order of the input: similar texts have a high cosine.

    An lstm gives its state after a text; other models give the weighted mean of the vectors of its words.
    Vectors have length 1, or 0 for a text without a known word.
    """
    from manyhands.evaluation.embed import embed as vectors_of
    from manyhands.formats.matrices import write_rows, writer_of
    from manyhands.storage.files import refuse_to_replace

    if out is not None:  # what cannot be written is said before the work
        writer_of(out)
        refuse_to_replace(out, overwrite)
    elif overwrite:
        raise UsageError("--overwrite is for --out")
    with watch() as progress:
        found = vectors_of(vectors, sources or ["-"], threads=threads, progress=progress, **settings)
        if out is not None:
            rows = write_rows(found, out)
            typer.echo(f"{out}: vectors of {rows:,} texts")
            return
        for block in found:
            for row in block.tolist():
                typer.echo(" ".join(f"{number:.6g}" for number in row))
