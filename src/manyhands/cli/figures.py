"""Tables of figures on a terminal: the first column is a name, and no number is ever cut short."""

from collections.abc import Container, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

GAP = 2  # between two columns


def print_figures(heads: Sequence[str], rows: Sequence[Sequence[str]], names: Container[str] = ()) -> None:
    """Print all columns to the right, but for those whose heads are ``names``."""
    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, justify="left" if head in names else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    wide = sum(max(map(cell_len, column)) + GAP for column in zip(heads, *rows, strict=True))
    Console(highlight=False, markup=False, width=wide).print(table, soft_wrap=True)
