"""Word vectors from wherever they are kept: a bundle, or a file that others made."""

import os

from fsspec.core import url_to_fs

from manyhands.bundle.bundle import Bundle, load_bundle
from manyhands.errors import InputError
from manyhands.formats.vectors import read_embedding
from manyhands.models.model import EMBED, Embedder
from manyhands.storage.files import STDIN, reading
from manyhands.text.embedding import Embedding


def open_embedding(path: str | os.PathLike[str]) -> Embedding:
    """The word vectors of a bundle or of a file of vectors."""
    opened = open_either(path)
    return embedding_of(opened) if isinstance(opened, Bundle) else opened


def open_either(path: str | os.PathLike[str]) -> Bundle | Embedding:
    """The vectors of a file; or, if it is a folder, a bundle."""
    name = os.fspath(path)
    with reading(name):
        filesystem, place = url_to_fs(name)
        is_file = name == STDIN or filesystem.isfile(place)
    if not is_file:
        return load_bundle(name)
    try:
        return read_embedding(name)
    except InputError as error:
        raise InputError(f"{error} (read as word vectors, since a bundle is a folder)") from None


def embedding_of(bundle: Bundle) -> Embedding:
    """The words of a bundle's model and their vectors."""
    model: Embedder = bundle.need(EMBED, "have no word vectors")
    return model.embedding(bundle.vocabulary if bundle.has_vocabulary else None)
