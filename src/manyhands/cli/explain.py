"""``manyhands explain``: the part of every n-gram in a text's score."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from manyhands.cli.options import AsJson, BundleArgument

BAR_WIDTH = 30


def explain(
    bundle: BundleArgument,
    text: Annotated[str, typer.Argument(help="The text to explain.", show_default=False)],
    label: Annotated[
        str | None, typer.Option(help="Label to explain; by default the most likely one.")
    ] = None,
    top: Annotated[int, typer.Option(help="Number of n-grams to show, largest contribution first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show what each word and n-gram adds to the score; these parts add up to it.

    Of ngrams and fasttext the parts are exact; of lstm they are integrated gradients.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from manyhands.bundle.bundle import load_classifier
    from manyhands.bundle.explain import explain as take_apart

    found = take_apart(load_classifier(bundle), text, label)
    if as_json:
        typer.echo(json.dumps(asdict(found), ensure_ascii=False))
        return
    typer.echo(f"{found.label}  {found.probability:.4f}")
    table = Table("part", "n-gram", "", box=None, pad_edge=False)
    table.columns[0].justify = "right"
    most = max((abs(part.part) for part in found.parts), default=1.0) or 1.0
    for part in found.parts[:top]:
        bar = ("+" if part.part > 0 else "-") * round(BAR_WIDTH * abs(part.part) / most)
        table.add_row(f"{part.part:+.4f}", Text(part.ngram), bar)
    rest = sum(part.part for part in found.parts[top:])
    if len(found.parts) > top:
        table.add_row(f"{rest:+.4f}", Text(f"({len(found.parts) - top:,} others)"), "")
    table.add_row(f"{found.bias:+.4f}", Text("(bias)"), "")
    table.add_row(f"{found.score:+.4f}", Text("= score"), "")
    Console(highlight=False).print(table)
    if found.unknown:
        typer.echo(f"not seen in training: {' '.join(found.unknown[:20])}")
