"""``manyhands export``: a dataset in the fixed-width layout of other tools."""

from typing import Annotated

import typer

from manyhands.cli.progress import watch


def export(
    dataset: Annotated[str, typer.Argument(help="Folder or URL of a dataset.", show_default=False)],
    to: Annotated[str, typer.Option(help="HDF5 file to write.", show_default=False)],
    length: Annotated[int, typer.Option(help="Cut or pad every row to this many token ids.")] = 100,
    parts: Annotated[int, typer.Option(help="Number of HDF5 datasets to divide the rows into.")] = 8,
) -> None:
    """Write one HDF5 file with rows of equal length: token ids, then the label."""
    from manyhands.data.dataset import open_dataset
    from manyhands.data.export import export as write

    with watch() as progress:
        rows = write(open_dataset(dataset), to, length=length, parts=parts, progress=progress)
    typer.echo(f"{to}: {rows:,} rows of {length} ids and a label, in {parts} datasets")
