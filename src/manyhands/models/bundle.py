"""A bundle: a folder that holds a trained model and all that is needed to use it, and no code."""

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from manyhands.catalog import MODELS, load
from manyhands.errors import InputError
from manyhands.models.learner import Arrays, Model, Scores
from manyhands.models.packed import PACKED, unpack
from manyhands.models.space import slotting_from
from manyhands.settings import LabelScheme, TextSettings
from manyhands.storage.destination import Kind
from manyhands.storage.files import flush, sha256
from manyhands.storage.tensors import read_tensors, write_tensors
from manyhands.text.normalise import Normaliser
from manyhands.text.ragged import Ragged, from_strings
from manyhands.text.vocabulary import Vocabulary

CONFIG, TENSORS, SUMS, CARD, RECORD = (
    "config.json",
    "model.safetensors",
    "SHA256SUMS",
    "README.md",
    "record.json",
)
VERSION = 2  # words are hashed in another way than in version 1
LARGEST_CONFIG_BYTES = 256 << 20
IMPORTED = "imported"


class BundleConfig(BaseModel):
    """``config.json``: which model, its labels, and how raw text becomes its input."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    model: str
    labels: list[str]  # none of models of word vectors
    label_scheme: LabelScheme
    text: TextSettings
    facts: dict[str, Any]
    settings: dict[str, Any]


@dataclass(frozen=True)
class Bundle:
    """A model with the normaliser that its texts go through."""

    config: BundleConfig
    model: Model
    folder: Path | None = None
    stored: Arrays | None = None  # what a packed bundle keeps in place of the model's own arrays

    @property
    def labels(self) -> list[str]:
        return self.config.labels

    @cached_property
    def normaliser(self) -> Normaliser:
        return Normaliser(self.config.text)

    @property
    def has_vocabulary(self) -> bool:
        return self.folder is not None and (self.folder / "vocabulary.tsv").is_file()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words of the training rows, where the bundle kept them."""
        if self.folder is None or not self.has_vocabulary:
            raise InputError("this bundle keeps no vocabulary; take the model it was made from")
        return Vocabulary.load(self.folder)

    def scores(self, texts: Ragged) -> Scores:
        """The probability of each label for each raw text."""
        return self.model.scores(self.model.read(self.normaliser.ragged(texts)))

    def predict(self, texts: list[str], top: int = 1) -> list[list[tuple[str, float]]]:
        """The most likely labels of each text, with their probabilities."""
        scores = self.scores(from_strings(texts))
        best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
        return [
            [(self.labels[label], float(row[label])) for label in chosen]
            for row, chosen in zip(scores, best.tolist(), strict=True)
        ]

    def verify(self) -> None:
        """Compare every file with its checksum."""
        if self.folder is None:
            return
        for line in _sums(self.folder):
            expected, _, name = line.partition("  ")
            if not re.fullmatch(r"[\w.-]+", name) or not (self.folder / name).is_file():
                raise InputError(f"{name[:80]} of {self.folder} is missing; fetch the bundle again")
            if sha256(self.folder / name) != expected:
                raise InputError(
                    f"{name} of {self.folder} is damaged (wrong checksum); fetch the bundle again"
                )


def _sums(folder: Path) -> list[str]:
    try:
        return (folder / SUMS).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{folder} holds no {SUMS} that can be read, so it is no whole bundle") from None


def save_bundle(folder: Path, bundle: Bundle, vocabulary: Vocabulary | None, card: str, record: Any) -> None:
    """Write all files of a bundle into an empty folder, the checksums last."""
    write_tensors(folder / TENSORS, bundle.stored or bundle.model.arrays())
    (folder / CONFIG).write_text(bundle.config.model_dump_json(indent=1) + "\n", "utf-8")
    (folder / CARD).write_text(card, "utf-8")
    if record is not None:
        (folder / RECORD).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    if vocabulary is not None:
        vocabulary.save(folder)
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    for path in files:
        flush(path)
    (folder / SUMS).write_text("".join(f"{sha256(path)}  {path.name}\n" for path in files), "utf-8")
    flush(folder / SUMS)


def open_bundle(path: str | Path) -> Bundle:
    """Open a bundle by mapping its arrays; whatever is wrong with it is an error, and never a crash."""
    folder = Path(path)
    config = _config(folder)
    arrays, _ = read_tensors(folder / TENSORS)
    try:
        model = model_of(config, arrays)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, MemoryError) as error:
        raise InputError(f"{folder} is no sound bundle: {type(error).__name__} {str(error)[:80]}") from None
    return Bundle(config, model, folder, arrays if PACKED in config.facts else None)


def model_of(config: BundleConfig, arrays: Arrays) -> Any:
    """The model of which a bundle keeps these arrays."""
    kind = _model_class(config.model)
    facts = {**config.facts, "labels": config.labels}
    if not config.labels and not hasattr(kind, "embedding"):
        raise InputError("a model that tells labels has none")
    if PACKED in facts:
        arrays = unpack(facts, arrays, slotting_from(facts["features"]).slots)
    return kind.from_parts(facts, arrays)


def _model_class(name: str) -> Any:
    if name == IMPORTED:
        return load({IMPORTED: "manyhands.models.imported:ImportedFastText"}, "model", name)
    return load(MODELS, "model", name).Model


def _config(folder: Path) -> BundleConfig:
    path = folder / CONFIG
    if not (folder / SUMS).is_file() or not path.is_file():
        what = "holds no whole bundle" if folder.is_dir() else "does not exist"
        raise InputError(f"{folder} {what}; make one with: manyhands train … --out {folder}")
    try:
        if path.stat().st_size > LARGEST_CONFIG_BYTES:
            raise InputError(f"{path} is too large to be a configuration")
        config = BundleConfig.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{path} is no configuration of a bundle ({where} {first['msg']})") from None
    if config.version != VERSION:
        raise InputError(
            f"{path} is of version {config.version}, not {VERSION}; train or import the model again"
        )
    return config


BUNDLE = Kind(
    "bundle",
    SUMS,
    re.compile(
        r"config\.json|model\.safetensors|vocabulary\.tsv|README\.md|record\.json|SHA256SUMS|events\.out\..*"
    ),
    _config,
)
