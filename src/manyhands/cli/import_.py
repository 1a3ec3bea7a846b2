"""``manyhands import``: a model that fastText trained."""

from typing import Annotated

import typer

from manyhands.cli.options import BundleOut, Overwrite


def add_to(app: typer.Typer) -> None:
    app.command("import")(import_)


def import_(
    model: Annotated[str, typer.Argument(help="A .bin or .ftz file of fastText.", show_default=False)],
    out: BundleOut,
    overwrite: Overwrite = False,
) -> None:
    """Turn a classifier of fastText into a bundle that gives the same predictions."""
    from manyhands.models.importing import import_fasttext

    bundle = import_fasttext(model, out, overwrite=overwrite)
    typer.echo(f"{out}: {len(bundle.labels):,} labels")
