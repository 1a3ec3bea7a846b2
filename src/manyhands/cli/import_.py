"""``manyhands import``: a model that fastText trained."""

from typing import Annotated

import typer

from manyhands.cli.options import BundleOut, Overwrite


def import_(
    model: Annotated[
        str, typer.Argument(help="The .bin or .ftz file of a fastText classifier.", show_default=False)
    ],
    out: BundleOut,
    overwrite: Overwrite = False,
) -> None:
    """Turn a fastText classifier into a bundle that gives the same predictions."""
    from manyhands.bundle.importing import import_fasttext

    bundle = import_fasttext(model, out, overwrite=overwrite)
    typer.echo(f"{out}: {len(bundle.labels):,} labels")
