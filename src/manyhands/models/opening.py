"""Word vectors from wherever they are kept: a bundle, or a file that others made."""

import os

from fsspec.core import url_to_fs

from manyhands.errors import UsageError
from manyhands.models.bundle import IMPORTED, Bundle
from manyhands.models.embedding import Embedding, HasEmbedding
from manyhands.models.fasttext import FastTextModel
from manyhands.models.fasttext_words import word_embedding
from manyhands.models.saving import load_bundle
from manyhands.models.vector_files import read_embedding
from manyhands.storage.files import STDIN, reading

KINDS = {"ngrams": "an ngrams model", "lstm": "an lstm model", IMPORTED: "a model imported from fastText"}


def open_embedding(path: str | os.PathLike[str]) -> Embedding:
    """The word vectors of a bundle or of a file of vectors."""
    opened = open_either(path)
    return embedding_of(opened, os.fspath(path)) if isinstance(opened, Bundle) else opened


def open_either(path: str | os.PathLike[str]) -> Bundle | Embedding:
    """The vectors of a file; or, if it is none, a bundle."""
    name = os.fspath(path)
    with reading(name):
        filesystem, place = url_to_fs(name)
        is_file = name == STDIN or filesystem.isfile(place)
    return read_embedding(name) if is_file else load_bundle(name)


def embedding_of(bundle: Bundle, name: str = "this bundle") -> Embedding:
    """The words of a bundle's model and their vectors."""
    model: object = bundle.model
    if isinstance(model, HasEmbedding):
        return model.embedding()
    if isinstance(model, FastTextModel):
        return word_embedding(model, bundle.vocabulary)
    kind = KINDS.get(bundle.config.model, f"a {bundle.config.model} model")
    raise UsageError(f"{name} is {kind}, which has no word vectors; train one with --model skipgram")
