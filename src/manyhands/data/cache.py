"""Remote datasets, fetched once into the user's cache folder: only local files can be mapped."""

import hashlib
from pathlib import Path

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.data.manifest import DATASET, FILE, LARGEST_BYTES, Manifest
from manyhands.errors import InputError
from manyhands.storage.destination import destination
from manyhands.storage.files import cache_folder, reading


def local_copy(path: str) -> Path:
    """The folder itself if it is local, else its copy, named by the manifest's checksum."""
    with reading(path):
        filesystem, remote = url_to_fs(path)
        if isinstance(filesystem, LocalFileSystem):
            return Path(path.removeprefix("file://"))
        if not filesystem.exists(f"{remote}/{FILE}"):
            raise InputError(f"{path} holds no manifest, so it is no whole dataset; prepare it first")
        if filesystem.size(f"{remote}/{FILE}") > LARGEST_BYTES:
            raise InputError(f"{path}/{FILE} is too large to be a manifest")
        stored = filesystem.cat_file(f"{remote}/{FILE}")
        copy = cache_folder("datasets") / hashlib.sha256(stored).hexdigest()[:32]
        if not (copy / FILE).is_file():
            with destination(str(copy), True, DATASET) as folder:  # another process may do the same
                (folder / FILE).write_bytes(stored)
                manifest = Manifest.load(folder)
                for name in [part.name for part in manifest.parts] + list(manifest.files):
                    filesystem.get_file(f"{remote}/{name}", str(folder / name))
                manifest.verify(folder)
        return copy
