"""The manifest of a dataset: what it holds, how it was made, and where every input row went."""

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from manyhands.errors import InputError
from manyhands.records import Ledger
from manyhands.settings import LabelScheme, PrepareSettings
from manyhands.storage.destination import MARKERS, Kind, not_found
from manyhands.storage.files import flush, sha256
from manyhands.text.vocabulary import FILE as VOCABULARY

FILE = MARKERS["dataset"]
VERSION = 1
LARGEST_BYTES = 64 << 20
Count = Annotated[int, Field(ge=0)]
# A manifest may come from anywhere: it can only name files beside it.
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True)


class PartFacts(_Facts):
    name: FileName
    split: str
    rows: Count
    tokens: Count
    bytes: Count
    sha256: str


class FileFacts(_Facts):
    bytes: Count
    sha256: str


class LabelFacts(_Facts):
    scheme: LabelScheme
    names: list[str]
    multi_label: bool


class SourceFacts(_Facts):
    name: str
    bytes: Count | None
    split: str | None


class Manifest(_Facts):
    version: int
    rows: Count
    tokens: Count
    splits: dict[str, Count]
    labels: LabelFacts
    vocabulary: Count
    ledger: Ledger
    rejections: dict[str, Count]
    settings: PrepareSettings
    sources: list[SourceFacts]
    parts: list[PartFacts]
    files: dict[FileName, FileFacts]

    def save(self, folder: Path) -> None:
        with (folder / FILE).open("w", encoding="utf-8") as file:
            json.dump(self.model_dump(), file, indent=1, ensure_ascii=False)
            file.write("\n")
        flush(folder / FILE)

    def fingerprint(self, split: str, *, labelled: bool) -> str:
        """The same for the same rows of a split, by the checksums of its parts."""
        sums = [part.sha256 for part in self.parts if part.split == split]
        sums += [self.files[VOCABULARY].sha256]  # of the words that tokens stand for
        names = self.labels.names if labelled else None
        return hashlib.sha256(json.dumps([sums, names]).encode()).hexdigest()[:16]

    def verify(self, folder: Path) -> None:
        """Read every file that the manifest names and compare it with its checksum."""
        facts = {part.name: part.sha256 for part in self.parts}
        facts |= {name: file.sha256 for name, file in self.files.items()}
        for name, expected in facts.items():
            if not (folder / name).is_file():
                raise InputError(f"{name} of {folder} is missing; prepare the dataset again")
            if sha256(folder / name) != expected:
                raise InputError(f"{name} of {folder} is damaged (wrong checksum); prepare the dataset again")

    @classmethod
    def load(cls, folder: Path) -> "Manifest":
        path = folder / FILE
        if not path.is_file():
            raise not_found(folder, "dataset", "prepare")
        if path.stat().st_size > LARGEST_BYTES:
            raise InputError(f"{path} is too large to be a manifest")
        try:
            manifest = cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InputError(
                f"{path} is not a manifest ({where} {first['msg']}); prepare the dataset again"
            ) from None
        if manifest.version != VERSION:
            raise InputError(
                f"{path} is of version {manifest.version}, not {VERSION}; prepare the dataset again"
            )
        return manifest


DATASET = Kind(
    "dataset",
    FILE,
    re.compile(r"(train|valid|test)-\d+\.h5|dataset\.h5|vocabulary\.tsv|rejected\.csv|manifest\.json"),
    Manifest.load,
)
