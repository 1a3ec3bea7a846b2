"""``manyhands sample``: synthetic reviews of any size."""

from typing import Annotated

import typer

from manyhands.cli.progress import watch
from manyhands.errors import UsageError


def sample(
    rows: Annotated[
        str, typer.Option(help="Number of reviews; may have underscores, as 1_000_000.", show_default=False)
    ],
    out: Annotated[
        str,
        typer.Option(help="File or URL to write; .gz, .bz2 and .zst are compressed; - is standard output."),
    ] = "-",
    seed: Annotated[int, typer.Option(help="Random seed: another one gives other reviews.")] = 0,
) -> None:
    """Write synthetic reviews: Zipf words, opinions that match the stars, duplicates, broken lines."""
    from manyhands.data.sample import sample as write

    try:
        count = int(rows.replace(",", "_"))
    except ValueError:
        raise UsageError(f"--rows {rows} is not a whole number") from None
    with watch() as progress:
        write(count, out, seed=seed, progress=progress)
