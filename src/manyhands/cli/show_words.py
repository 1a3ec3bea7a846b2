"""The figures of word vectors on the screen."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def show(facts: dict[str, Any], folder: str, why: str) -> None:
    """Print the facts of a report; ``why`` says why there is no PIP loss."""
    console = Console(highlight=False, markup=False)
    console.print(f"{facts['words']:,} words, {facts['dim']} numbers each", soft_wrap=True)
    if facts["similarity"]:
        console.print(_similarity(facts["similarity"]))
        console.print("all: pairs with an unknown word count as cosine 0", soft_wrap=True)
    for name, found in facts["analogies"].items():
        console.print(_analogies(name, found))
    if facts["missing"]:
        console.print(f"not found in {folder}: {', '.join(facts['missing'])}", soft_wrap=True)
    pip = facts["pip"]
    if pip is None:
        console.print(f"no PIP loss: {why}", soft_wrap=True)
        return
    console.print(
        f"PIP loss {pip['loss']:,.1f} over {pip['words']:,} words; {pip['relative']:.4f} of the reference's "
        f"norm if both are as long; random vectors reach {pip['random']:.4f} and zeros {pip['zero']:.4f}",
        soft_wrap=True,
    )


def _numbers(*heads: str) -> Table:
    table = Table(*heads, box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _rate(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _similarity(sets: dict[str, Any]) -> Table:
    table = _numbers("similarity", "Spearman", "coverage", "pairs", "all", "unseen words")
    for name, found in sets.items():
        unseen = found["unseen"]
        spelled = "-" if not unseen else f"{_rate(unseen['spearman'])} of {unseen['pairs']:,}"
        table.add_row(
            Text(name),
            _rate(found["spearman"]),
            f"{found['coverage']:.1%}",
            f"{found['pairs']:,}",
            _rate(found["spearman_all"]),
            spelled,
        )
    return table


def _analogies(name: str, found: dict[str, Any]) -> Table:
    table = _numbers(f"analogies {name}", "3CosAdd", "3CosMul", "covered", "questions")
    rows = {**found["sections"], **{k: found[k] for k in ("semantic", "syntactic") if found[k]}}
    for section, score in {**rows, "total": found["total"]}.items():
        accuracy = score["accuracy"]
        shares = ("-" if accuracy[k] is None else f"{accuracy[k]:.1%}" for k in ("add", "mul"))
        table.add_row(Text(section), *shares, f"{score['covered']:,}", f"{score['questions']:,}")
    return table
