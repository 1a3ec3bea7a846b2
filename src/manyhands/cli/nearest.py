"""``manyhands nearest``: the words that are most like a word."""

import json
import sys
from typing import Annotated

import typer

from manyhands.cli.options import VectorsArgument, as_text


def add_to(app: typer.Typer) -> None:
    app.command("nearest")(nearest)


def nearest(
    vectors: VectorsArgument,
    words: Annotated[
        list[str],
        typer.Argument(help="Words; - for those on standard input, one a line.", show_default=False),
    ],
    top: Annotated[int, typer.Option(help="Show so many words, the nearest first.")] = 10,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line, for each word.")
    ] = False,
) -> None:
    """Print the words whose vectors point most nearly the same way, with their cosines."""
    from manyhands.models.nearest import neighbours
    from manyhands.models.opening import open_embedding

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
