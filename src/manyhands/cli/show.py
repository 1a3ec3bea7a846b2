"""A dataset's description on the screen."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from manyhands.cli.progress import amount

if TYPE_CHECKING:
    from manyhands.data.dataset import Dataset
    from manyhands.data.describe import Description

BAR_WIDTH = 30


def describe(dataset: "Dataset", length: int) -> None:
    """Print what ``manyhands inspect`` shows."""
    from manyhands.data.describe import describe_dataset

    facts = describe_dataset(dataset, length)
    console = Console(highlight=False, markup=False)
    console.print(
        f"{facts.folder}: {facts.rows:,} rows, {facts.tokens:,} tokens, {amount(facts.bytes, 'B')}",
        soft_wrap=True,
    )
    ledger = facts.ledger
    console.print(
        f"where the input went: {ledger.read:,} read = {ledger.kept:,} kept "
        f"+ {ledger.duplicates:,} duplicates + {ledger.empty:,} empty + {ledger.rejected:,} rejected",
        soft_wrap=True,
    )
    for reason, count in sorted(facts.rejections.items(), key=lambda item: -item[1])[:5]:
        console.print(f"  rejected {count:,}: {reason}", soft_wrap=True)
    console.print(_labels(facts))
    console.print(_lengths(facts))
    console.print(
        f"length: mean {facts.mean_length:.1f}, longest {facts.longest:,}; "
        f"{facts.length} tokens cover {facts.coverage:.1%} of the rows",
        soft_wrap=True,
    )
    words = " ".join(word for word, _ in facts.most_frequent)
    console.print(
        f"vocabulary: {facts.vocabulary:,} words, {facts.known_tokens:.1%} of the training tokens; "
        f"most frequent: {words}",
        soft_wrap=True,
    )


def _labels(facts: "Description") -> Table:
    table = Table("label", *(f"{split}" for split in facts.splits), "share", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    total = sum(sum(counts.values()) for counts in facts.labels.values()) or 1
    for name, counts in list(facts.labels.items())[:25]:
        share = f"{sum(counts.values()) / total:.1%}"
        table.add_row(Text(name), *(f"{count:,}" for count in counts.values()), share)
    if len(facts.labels) > 25:
        table.add_row(f"… {len(facts.labels) - 25:,} more")
    table.add_row("rows", *(f"{count:,}" for count in facts.splits.values()), "")
    return table


def _lengths(facts: "Description") -> Table:
    table = Table("tokens", "rows", "", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    most = max((rows for _, _, rows in facts.lengths), default=1)
    for low, high, rows in facts.lengths:
        table.add_row(f"{low:,}-{high:,}", f"{rows:,}", "#" * round(BAR_WIDTH * rows / most))
    return table
