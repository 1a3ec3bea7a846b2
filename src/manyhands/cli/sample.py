"""``manyhands sample``: synthetic reviews of any size."""

from typing import Annotated

import typer

from manyhands.cli.progress import watch
from manyhands.errors import UsageError


def add_to(app: typer.Typer) -> None:
    app.command("sample")(sample)


def sample(
    rows: Annotated[
        str, typer.Option(help="How many reviews; 1_000_000 may be written so.", show_default=False)
    ],
    out: Annotated[
        str, typer.Option(help="File or URL to write (.gz, .bz2, .zst compress); - prints.")
    ] = "-",
    seed: Annotated[int, typer.Option(help="Another seed gives other reviews.")] = 0,
) -> None:
    """Write synthetic reviews: Zipf words, opinions that follow the stars, duplicates, broken lines."""
    from manyhands.data.sample import sample as write

    try:
        count = int(rows.replace(",", "_"))
    except ValueError:
        raise UsageError(f"--rows {rows} is no whole number") from None
    with watch() as progress:
        write(count, out, seed=seed, progress=progress)
