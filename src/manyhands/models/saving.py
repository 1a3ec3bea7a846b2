"""Writing a bundle to its place, and fetching one that stands elsewhere."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.errors import InputError, UsageError
from manyhands.models.bundle import BUNDLE, RECORD, SUMS, Bundle, open_bundle, save_bundle
from manyhands.models.card import model_card
from manyhands.storage.destination import destination
from manyhands.storage.files import cache_folder, reading
from manyhands.text.vocabulary import Vocabulary

LARGEST_SUMS_BYTES = 1 << 16
SUM_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][\w.-]{0,99})")

StrPath = str | os.PathLike[str]


def write_bundle(
    bundle: Bundle,
    out: StrPath,
    record: dict[str, Any],
    *,
    overwrite: bool = False,
    vocabulary: Vocabulary | None = None,
) -> None:
    """Write a bundle; it is there whole or not at all."""
    with destination(os.fspath(out), overwrite, BUNDLE) as folder:
        save_bundle(folder, bundle, vocabulary, model_card(bundle.config, record), record)


def load_bundle(path: StrPath) -> Bundle:
    """Open a bundle, wherever it stands; a remote one is fetched once, checked and kept."""
    with reading(os.fspath(path)):
        filesystem, remote = url_to_fs(os.fspath(path))
        if isinstance(filesystem, LocalFileSystem):
            return open_bundle(Path(remote) if os.fspath(path).startswith("file:") else Path(path))
        remote = remote.rstrip("/")
        if not filesystem.exists(f"{remote}/{SUMS}"):
            raise InputError(f"{path} holds no whole bundle; make one with: manyhands train … --out {path}")
        sums = filesystem.cat_file(f"{remote}/{SUMS}", end=LARGEST_SUMS_BYTES)
        copy = cache_folder("bundles") / hashlib.sha256(sums).hexdigest()[:32]
        if not (copy / SUMS).is_file():
            with destination(str(copy), True, BUNDLE) as folder:  # another process may do the same
                for line in sums.decode("utf-8", "replace").splitlines():
                    found = SUM_LINE.fullmatch(line)
                    if not found:
                        raise InputError(f"{path}/{SUMS} is damaged; write the bundle again")
                    filesystem.get_file(f"{remote}/{found[2]}", str(folder / found[2]))
                (folder / SUMS).write_bytes(sums)
                open_bundle(folder).verify()
        return open_bundle(copy)


def load_classifier(path: StrPath) -> Bundle:
    """Open a bundle that can tell labels."""
    bundle = load_bundle(path)
    if not bundle.labels:
        raise UsageError(
            f"{path} holds word vectors ({bundle.config.model}), which tell no labels; "
            "use it with nearest, analogy, evaluate, convert or project"
        )
    return bundle


def record_of(bundle: Bundle) -> dict[str, Any]:
    """The record of the run that made a bundle; empty where it is not kept."""
    if bundle.folder is None or not (bundle.folder / RECORD).is_file():
        return {}
    try:
        record = json.loads((bundle.folder / RECORD).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
