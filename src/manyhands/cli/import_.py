"""``manyhands import``: a model that fastText trained."""

from typing import Annotated

import typer

from manyhands.cli.options import BundleOut, Overwrite


def import_(
    model: Annotated[
        str,
        typer.Argument(
            help="The .bin or .ftz file of a fastText classifier, or the .bin of word vectors.",
            show_default=False,
        ),
    ],
    out: BundleOut,
    overwrite: Overwrite = False,
) -> None:
    """Turn a fastText model into a bundle that gives the same predictions, or the same word vectors."""
    from manyhands.bundle.importing import import_fasttext
    from manyhands.bundle.word_vectors import embedding_of

    bundle = import_fasttext(model, out, overwrite=overwrite)
    if bundle.labels:
        typer.echo(f"{out}: {len(bundle.labels):,} labels")
        return
    embedding = embedding_of(bundle)
    typer.echo(f"{out}: {len(embedding):,} words, {embedding.dim} numbers each")
