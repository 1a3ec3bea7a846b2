"""``manyhands profile``: where the time of a run went."""

import json
from pathlib import Path
from typing import Annotated

import typer

from manyhands.cli.options import AsJson

Run = Annotated[str, typer.Argument(help="The folder of a run.", show_default=False)]
BAR_COLUMNS = 40
BLOCKS = " ▏▎▍▌▋▊▉█"


def profile(
    run: Run,
    picture: Annotated[
        Path | None, typer.Option(help="Also write a chart, with the shares over time, to this SVG file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show where the time of a run went: each part of a step, for each worker."""
    from manyhands.errors import UsageError
    from manyhands.report.picture import draw
    from manyhands.report.profile import profile_of

    found = profile_of(run)
    if picture is not None:
        try:
            picture.write_text(draw(found), "utf-8")
        except OSError as error:
            raise UsageError(f"{picture} cannot be written: {error.strerror}") from None
    if as_json:
        typer.echo(json.dumps(found.facts()))
        return
    typer.echo(f"{run}: {found.model}, {found.spread}, {found.steps:,} steps")
    for worker in range(found.workers):
        total = found.total(worker) or 1e-9
        typer.echo(f"\nworker {worker}: {total:.2f} s")
        for part, spent in found.seconds.items():
            share = spent[worker] / total
            milliseconds = 1000 * spent[worker] / max(found.steps, 1)
            figures = f"{spent[worker]:>9.2f} s {share:>6.1%} {milliseconds:>9.3f} ms a step"
            typer.echo(f"  {part:<9}{figures}  {_bar(share)}")
    if found.shares:
        step, shares = found.shares[-1]
        now = " : ".join(f"{share:.3f}" for share in shares)
        typer.echo(f"\nshares after {len(found.shares)} measurements, at step {step:,}: {now}")


def _bar(share: float) -> str:
    whole, rest = divmod(round(share * BAR_COLUMNS * 8), 8)
    return "█" * whole + (BLOCKS[rest] if rest else "")
