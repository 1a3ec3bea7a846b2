"""``manyhands quantize``: a bundle made small."""

from typing import Annotated

import typer

from manyhands.cli.options import BundleArgument, BundleOut, Overwrite
from manyhands.cli.progress import amount


def add_to(app: typer.Typer) -> None:
    app.command("quantize")(quantize)


def quantize(
    bundle: BundleArgument,
    out: BundleOut,
    size: Annotated[str, typer.Option(help="The bundle takes no more than this.")] = "2MB",
    overwrite: Overwrite = False,
) -> None:
    """Keep the features that matter most, with codes of a byte in place of their numbers."""
    from manyhands.machine import parse_size
    from manyhands.models.quantize import quantize_bundle

    small = quantize_bundle(bundle, out, parse_size(size), overwrite=overwrite)
    stored = sum(array.nbytes for array in (small.stored or {}).values())
    typer.echo(f"{out}: {amount(stored, 'B')} of arrays; see how good it is with: manyhands evaluate {out} …")
