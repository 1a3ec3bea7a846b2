"""``manyhands nearest``: the words that are most like a word."""

import json
import sys
from typing import Annotated

import typer

from manyhands.cli.options import VectorsArgument, as_text


def nearest(
    vectors: VectorsArgument,
    words: Annotated[
        list[str],
        typer.Argument(
            help="Words to look up; - reads them from standard input, one per line.", show_default=False
        ),
    ],
    top: Annotated[int, typer.Option(help="Number of words to show, most similar first.")] = 10,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, for each word.")
    ] = False,
) -> None:
    """Print the words whose vectors have the highest cosine with that of each given word."""
    from manyhands.bundle.word_vectors import open_embedding
    from manyhands.models.words.nearest import neighbours

    asked = [word for given in words for word in (_from_input() if given == "-" else [as_text(given)])]
    found = neighbours(open_embedding(vectors), asked, top, of=vectors)
    for word, near in zip(asked, found, strict=True):
        if as_json:
            shown = [{"word": other, "cosine": round(cosine, 6)} for other, cosine in near]
            typer.echo(json.dumps({"word": word, "nearest": shown}, ensure_ascii=False))
            continue
        if len(asked) > 1:
            typer.echo(f"{word}:")
        for other, cosine in near:
            typer.echo(f"{other}\t{cosine:.4f}")


def _from_input() -> list[str]:
    lines = (line.decode("utf-8", "replace").strip() for line in sys.stdin.buffer)
    return [line for line in lines if line]
