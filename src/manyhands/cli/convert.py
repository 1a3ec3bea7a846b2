"""``manyhands convert``: a bundle in the file formats of other tools."""

from pathlib import Path
from typing import Annotated

import typer


def convert(
    bundle: Annotated[str, typer.Argument(help="Folder of a bundle.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            help="Format. onnx (from feature numbers to probabilities) or safetensors (all arrays, with the "
            "configuration as metadata). For word vectors: word2vec or vec (text), word2vec-binary, glove, "
            "keyedvectors (for gensim) or projector (a folder for TensorBoard's projector).",
            show_default=False,
        ),
    ],
    out: Annotated[
        str | None, typer.Option(help="File or URL to write; by default the bundle's name, in this folder.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a bundle in the file formats of other tools.

    An ONNX file begins with feature numbers. Normalising and hashing of raw text are left outside, as ONNX
    has no operators for them: manyhands.bundle.convert.onnx_inputs makes the numbers. Files of word vectors
    leave out words that contain a blank, which they cannot hold.
    """
    from manyhands.bundle.bundle import load_bundle
    from manyhands.bundle.convert import convert as write

    files = write(
        load_bundle(bundle), to, out or f"{Path(bundle).name or 'bundle'}.{to}", overwrite=overwrite
    )
    for file in files:
        typer.echo(file, err=file == "-")
