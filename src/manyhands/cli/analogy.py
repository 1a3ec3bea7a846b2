"""``manyhands analogy``: the word that completes a proportion."""

import json
from typing import Annotated

import typer

from manyhands.cli.options import AsJson, VectorsArgument, as_text


def analogy(
    vectors: VectorsArgument,
    first: Annotated[str, typer.Argument(help="A word, like man …", show_default=False)],
    second: Annotated[str, typer.Argument(help="… that is to this one, like woman …", show_default=False)],
    third: Annotated[str, typer.Argument(help="… as this one, like king, is to what?", show_default=False)],
    top: Annotated[int, typer.Option(help="Number of words to show, best first.")] = 10,
    method: Annotated[
        str, typer.Option(help="add (3CosAdd: the cosine with second - first + third) or mul (3CosMul).")
    ] = "add",
    as_json: AsJson = False,
) -> None:
    """Complete an analogy: the first word is to the second as the third is to what?"""
    from manyhands.bundle.word_vectors import open_embedding
    from manyhands.models.words.nearest import complete

    first, second, third = (as_text(word) for word in (first, second, third))
    found = complete(open_embedding(vectors), first, second, third, top, method, of=vectors)
    if as_json:
        answers = [{"word": word, "score": round(score, 6)} for word, score in found]
        asked = {"first": first, "second": second, "third": third, "method": method}
        typer.echo(json.dumps({**asked, "answers": answers}, ensure_ascii=False))
        return
    for word, score in found:
        typer.echo(f"{word}\t{score:.4f}")
