"""``manyhands report``: a page about a run."""

from typing import Annotated

import typer

from manyhands.cli.compare import Baseline, Price, Runs
from manyhands.cli.options import Overwrite
from manyhands.cli.progress import watch


def report(
    runs: Runs,
    out: Annotated[
        str, typer.Option(help="HTML file or URL to write; - is standard output.")
    ] = "report.html",
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Dataset or raw files to judge the classifier by, instead of by its own test rows.",
            show_default=False,
        ),
    ] = None,
    baseline: Baseline = None,
    price: Price = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a page about a run: curves, confusion, calibration, where the time went, settings, data.

    The page is one file that works offline. Of several runs it shows all beside each other (speed-up, score
    and money), and the best of them in detail.
    """
    from manyhands.report.run_page import report as write
    from manyhands.storage.files import STDIN

    def warn(sentence: str) -> None:
        typer.echo(f"warning: {sentence}", err=True)

    with watch() as progress:
        shown = write(
            runs,
            out,
            data=data or (),
            baseline=baseline,
            price=price,
            overwrite=overwrite,
            progress=progress,
            warn=warn,
        )
    if out != STDIN:
        typer.echo(f"{out}: about {shown.folder}; open it in a browser")
