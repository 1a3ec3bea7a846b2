"""``manyhands explain``: the part of every n-gram in a text's score, or the weightiest of all texts."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyhands.cli.options import AsJson, BundleArgument
from manyhands.errors import UsageError

if TYPE_CHECKING:
    from manyhands.bundle.explain import Explanation
    from manyhands.evaluation.top_features import TopFeatures

BAR_WIDTH = 30


def explain(
    bundle: BundleArgument,
    text: Annotated[str | None, typer.Argument(help="The text to explain.", show_default=False)] = None,
    label: Annotated[
        str | None,
        typer.Option(help="Label to explain; by default the most likely one, or with --global all."),
    ] = None,
    top: Annotated[
        int, typer.Option(min=1, help="Number of n-grams to show, largest contribution first.")
    ] = 20,
    everywhere: Annotated[
        bool, typer.Option("--global", help="Show the n-grams that speak most for each label, in any text.")
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(
            help="With --global: dataset or raw file whose n-grams give features their names; by default "
            "the bundle's words, without longer n-grams."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what each word and n-gram adds to the score; these parts add up to it.

    Of ngrams and fasttext the parts are exact; of lstm they are integrated gradients.
    """
    if everywhere:
        _explain_all(bundle, text, label, top, data, as_json)
    elif text is None:
        raise UsageError("there is no text to explain; give one, or --global for the n-grams of each label")
    elif data is not None:
        raise UsageError("--data is for --global; a text is explained by its own n-grams")
    else:
        from manyhands.bundle.bundle import load_classifier
        from manyhands.bundle.explain import explain as take_apart

        found = take_apart(load_classifier(bundle), text, label)
        if as_json:
            typer.echo(json.dumps(asdict(found), ensure_ascii=False))
        else:
            _show_text(found, top)


def _explain_all(
    bundle: str, text: str | None, label: str | None, top: int, data: str | None, as_json: bool
) -> None:
    from manyhands.evaluation.top_features import top_features

    if text is not None:
        raise UsageError("--global is about all texts; leave out the text or --global")
    found = top_features(bundle, data, label=label, top=top)
    if as_json:
        typer.echo(json.dumps(asdict(found), ensure_ascii=False))
    else:
        _show_all(found, named_by="the bundle's words" if data is None else data)


def _show_text(found: "Explanation", top: int) -> None:
    typer.echo(f"{found.label}  {found.probability:.4f}")
    table, most = _table("part"), max((abs(part.part) for part in found.parts), default=0.0)
    for part in found.parts[:top]:
        _add_row(table, part.part, part.ngram, most)
    rest = sum(part.part for part in found.parts[top:])
    if len(found.parts) > top:
        _add_row(table, rest, f"({len(found.parts) - top:,} others)")
    _add_row(table, found.bias, "(bias)")
    _add_row(table, found.score, "= score")
    _print(table)
    if found.unknown:
        typer.echo(f"not seen in training: {' '.join(found.unknown[:20])}")


def _show_all(found: "TopFeatures", named_by: str) -> None:
    for label, ngrams in found.labels.items():
        typer.echo(label)
        table, most = _table("weight"), max((abs(one.weight) for one in ngrams), default=0.0)
        for one in ngrams:
            _add_row(table, one.weight, one.ngram, most)
        _print(table)
    shown = f"{found.named:,} of {found.features:,} features have a name, by {named_by}"
    typer.echo(shown if found.named == found.features else f"{shown}; --data names more")


def _table(first: str) -> Any:
    from rich.table import Table

    table = Table(first, "n-gram", "", box=None, pad_edge=False)
    table.columns[0].justify = "right"
    return table


def _add_row(table: Any, part: float, name: str, most: float = 0.0) -> None:
    """A line with a bar, as long as the part is large beside ``most``; without it, there is none."""
    from rich.text import Text

    bar = ("+" if part > 0 else "-") * round(BAR_WIDTH * abs(part) / most) if most else ""
    table.add_row(f"{part:+.4f}", Text(name), bar)


def _print(table: Any) -> None:
    from rich.console import Console

    Console(highlight=False).print(table)
