"""Word vectors as gensim keeps them, written by gensim itself: the only file that imports it."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.errors import UsageError, missing_extra
from manyhands.storage.files import COMPRESSED_SUFFIXES, cannot_write, writing
from manyhands.text.embedding import Embedding


def write_keyed_vectors(embedding: Embedding, out: str) -> list[str]:
    """What ``KeyedVectors.save`` writes: the file ``out``, and large arrays in files beside it."""
    if out.lower().endswith(COMPRESSED_SUFFIXES):
        raise UsageError(f"gensim maps its files, so they cannot be compressed; give {out} another suffix")
    keyed = _build_keyed_vectors(embedding)
    filesystem, path = url_to_fs(out)
    name, beside = Path(path).name, None
    try:
        if isinstance(filesystem, LocalFileSystem):
            beside = Path(path).parent
            beside.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=beside) as folder:
            keyed.save(f"{folder}/{name}")
            files = sorted(Path(folder).iterdir(), key=lambda file: file.name == name)  # the main file last
            written = [out + file.name.removeprefix(name) for file in files]
            for file, target in zip(files, written, strict=True):
                with file.open("rb") as made, writing(target) as place:
                    shutil.copyfileobj(made, place, 1 << 20)
    except OSError as error:
        raise cannot_write(out, error) from None
    return written[::-1]


def _build_keyed_vectors(embedding: Embedding) -> Any:
    try:
        from gensim.models import KeyedVectors  # noqa: PLC0415
    except ImportError:
        raise missing_extra("gensim", "gensim") from None
    keyed = KeyedVectors(embedding.dim)
    # These are what it consists of; its own way to add words would copy the vectors.
    keyed.vectors = embedding.vectors
    keyed.index_to_key = embedding.vocabulary.words.to_pylist()
    keyed.key_to_index = {word: row for row, word in enumerate(keyed.index_to_key)}
    if embedding.vocabulary.counts.any():
        keyed.expandos["count"] = embedding.vocabulary.counts
    return keyed
