"""Options that several verbs share: how raw files are read, what a run may use."""

from typing import Annotated, Any

import typer

BundleArgument = Annotated[
    str, typer.Argument(help="Folder or URL of a bundle, as train makes it.", show_default=False)
]
VectorsArgument = Annotated[
    str,
    typer.Argument(
        help="Folder or URL of a bundle, or a file of vectors by word2vec or GloVe.", show_default=False
    ),
]
Format = Annotated[
    str,
    typer.Option(help="Of raw files: jsonl, csv, yelp, labelled, text, parquet or arrow; found by itself."),
]
TextField = Annotated[str | None, typer.Option(help="Field or column of raw files that holds the text.")]
LabelField = Annotated[str | None, typer.Option(help="Field or column of raw files that holds the label.")]
LabelChoice = Annotated[
    str | None, typer.Option(help="Of raw files: polarity, polarity-strict, stars or as-is; found by itself.")
]
Memory = Annotated[str | None, typer.Option(help="Memory to use, like 4GB; half the machine's by default.")]
Threads = Annotated[int | None, typer.Option(help="Threads to use; all cores by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there already.")]
BundleOut = Annotated[str, typer.Option(help="Folder or URL that the bundle becomes.", show_default=False)]


def as_text(argument: str) -> str:
    """An argument whose bytes are no UTF-8, with question marks in their place."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def given(**values: Any) -> dict[str, Any]:
    """The options that the user gave; the others keep the defaults of whoever they are for."""
    return {name: value for name, value in values.items() if value not in (None, "auto")}
