"""``manyhands project``: the words of an embedding on a plane, as a page to look at."""

from typing import Annotated

import typer

from manyhands.cli.options import Overwrite
from manyhands.cli.progress import watch


def project(
    embedding: Annotated[
        str,
        typer.Argument(help="Folder of a bundle with word vectors, or a vector file.", show_default=False),
    ],
    words: Annotated[int, typer.Option(help="Number of words to show, most frequent first.")] = 2000,
    out: Annotated[str, typer.Option(help="HTML file or URL to write; - is standard output.")] = "words.html",
    seed: Annotated[int, typer.Option(help="Random seed: another one gives another layout.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Write a page with words in two dimensions: search, zoom, click a word to see its neighbours."""
    from manyhands.report.page import project as write
    from manyhands.storage.files import STDIN

    with watch() as progress:
        drawn = write(embedding, out, words=words, seed=seed, overwrite=overwrite, progress=progress)
    if out != STDIN:
        typer.echo(f"{out}: {len(drawn.words):,} words; open it in a browser")
