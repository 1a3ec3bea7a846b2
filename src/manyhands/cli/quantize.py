"""``manyhands quantize``: a bundle made small."""

from typing import Annotated

import typer

from manyhands.cli.options import BundleArgument, BundleOut, Overwrite
from manyhands.report.shown import amount


def quantize(
    bundle: BundleArgument,
    out: BundleOut,
    size: Annotated[str, typer.Option(help="Largest size that the bundle may have.")] = "2MB",
    overwrite: Overwrite = False,
) -> None:
    """Keep the most important features or words, and store one-byte codes in place of their weights."""
    from manyhands.bundle.quantize import quantize_bundle
    from manyhands.machine import parse_size

    small = quantize_bundle(bundle, out, parse_size(size), overwrite=overwrite)
    stored = sum(array.nbytes for array in small.model.arrays().values())
    typer.echo(f"{out}: {amount(stored, 'B')} of arrays; check its accuracy with: manyhands evaluate {out} …")
