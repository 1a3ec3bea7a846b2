"""``manyhands convert``: a bundle in the file formats of other tools."""

from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    app.command("convert")(convert)


def convert(
    bundle: Annotated[str, typer.Argument(help="Folder of a bundle.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            help="onnx (feature numbers to probabilities) or safetensors (all arrays, the configuration as "
            "metadata); of word vectors: word2vec or vec (text), word2vec-binary, glove, keyedvectors "
            "(gensim's own) or projector (a folder for TensorBoard's projector).",
            show_default=False,
        ),
    ],
    out: Annotated[
        str | None, typer.Option(help="File or URL to write; the bundle's name in this folder by default.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that is there already.")
    ] = False,
) -> None:
    """Write a bundle in the file formats of other tools.

    An ONNX file begins at feature numbers: texts become these in manyhands, by
    manyhands.models.space.Featuriser. Files of word vectors leave out what they
    cannot hold: words with a blank inside.
    """
    from manyhands.models.convert import convert as write
    from manyhands.models.saving import load_bundle

    files = write(
        load_bundle(bundle), to, out or f"{Path(bundle).name or 'bundle'}.{to}", overwrite=overwrite
    )
    for file in files:
        typer.echo(file, err=file == "-")
