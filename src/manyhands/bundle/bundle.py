"""A bundle: a folder that holds a trained model and all that is needed to use it, and no code."""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from pydantic import BaseModel, ConfigDict, ValidationError

from manyhands.bundle.calibration import CalibratedScorer, Calibration
from manyhands.bundle.card import model_card
from manyhands.catalog import LEARNERS, load_model
from manyhands.errors import InputError, UsageError
from manyhands.models.model import CLASSIFY, Arrays, Model, Scorer, Scores
from manyhands.settings import LabelScheme, TextSettings
from manyhands.storage.cache import local_copy
from manyhands.storage.destination import MARKERS, Kind, destination, not_found
from manyhands.storage.files import StrPath, flush, reading, sha256
from manyhands.storage.tensors import read_tensors, write_tensors
from manyhands.storage.versions import newest_version
from manyhands.text.normalise import Normaliser
from manyhands.text.ragged import Ragged, from_strings
from manyhands.text.vocabulary import Vocabulary

CONFIG, TENSORS, SUMS = "config.json", "model.safetensors", MARKERS["bundle"]
CARD, RECORD = "README.md", "record.json"
TRIES = 5  # to fetch what a stream replaces
VERSION = 2  # words are hashed in another way than in version 1
LARGEST_CONFIG_BYTES, LARGEST_SUMS_BYTES = 256 << 20, 1 << 16
SUM_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][\w.-]{0,99})")


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
    calibration: Calibration | None = None  # None: the model's own probabilities


@dataclass(frozen=True)
class Bundle:
    """A model with the normaliser that its texts go through."""

    config: BundleConfig
    model: Model
    folder: Path | None = None

    @property
    def labels(self) -> list[str]:
        return self.config.labels

    @cached_property
    def normaliser(self) -> Normaliser:
        return Normaliser(self.config.text)

    def need(self, what: str, cannot: str) -> Any:
        """The model, if it offers ``what``; else an error: what it ``cannot``, and which models can."""
        if what in self.model.can:
            return self.model
        able = [name for name in LEARNERS if what in load_model(name).can]
        listed = [*able[:-2], " or ".join(able[-2:])]
        raise UsageError(f"{self.config.model} models {cannot}; train one with --model {', '.join(listed)}")

    @cached_property
    def classifier(self) -> Scorer:
        """What gives texts their probabilities, calibrated where the bundle knows how."""
        model: Scorer = self.need(CLASSIFY, "cannot predict labels")
        calibration = self.config.calibration
        return model if calibration is None else CalibratedScorer(model, calibration)

    @property
    def has_vocabulary(self) -> bool:
        return self.folder is not None and (self.folder / "vocabulary.tsv").is_file()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words of the training rows, where the bundle kept them."""
        if self.folder is None or not self.has_vocabulary:
            raise InputError("this bundle keeps no vocabulary; take the model it was made from")
        return Vocabulary.load(self.folder)

    def scores(self, texts: Ragged | Sequence[str]) -> Scores:
        """The probability of each label for each raw text, in the order of ``labels``."""
        given = texts if isinstance(texts, Ragged) else _ragged(texts)
        return self.classifier.score_texts(self.normaliser.ragged(given))

    def predict(self, texts: Ragged | Sequence[str], top: int = 1) -> list[list[tuple[str, float]]]:
        """The most likely labels of each text, with their probabilities."""
        return self.likeliest(self.scores(texts), top)

    def likeliest(self, scores: Scores, top: int) -> list[list[tuple[str, float]]]:
        """Of each row of scores the most likely labels, with their probabilities."""
        names = self.labels
        if top == 1:  # a search for the best costs less than a sort, and finds the same
            best = zip(scores.argmax(1).tolist(), scores.max(1).tolist(), strict=True)
            return [[(names[label], value)] for label, value in best]
        chosen = np.argsort(-scores, axis=1, kind="stable")[:, :top]
        values = np.take_along_axis(scores, chosen, axis=1)
        return [
            [(names[label], value) for label, value in zip(*row, strict=True)]
            for row in zip(chosen.tolist(), values.tolist(), strict=True)
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


def _ragged(texts: Sequence[str]) -> Ragged:
    """Texts of a list; a single one would be taken for a list of its letters."""
    if isinstance(texts, str):
        raise UsageError("texts are a single str; give a list of texts, [text] for one of them")
    try:
        return from_strings(texts)
    except (TypeError, AttributeError):
        raise UsageError("texts hold something else than texts; give a list of str") from None
    except UnicodeEncodeError:
        raise InputError("a text holds half a character (a lone surrogate); mend it") from None


def _sums(folder: Path) -> list[str]:
    try:
        return (folder / SUMS).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{folder} is not a complete bundle: {SUMS} is missing or cannot be read") from None


def save_bundle(folder: Path, bundle: Bundle, vocabulary: Vocabulary | None, card: str, record: Any) -> None:
    """Write all files of a bundle into an empty folder, the checksums last."""
    write_tensors(folder / TENSORS, bundle.model.arrays())
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
    if folder.is_symlink():  # of a stream, it may lead to another model a moment later
        folder = folder.resolve()
    config = _config(folder)
    arrays, _ = read_tensors(folder / TENSORS)
    try:
        model = model_of(config, arrays)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, MemoryError) as error:
        raise InputError(f"{folder} is a damaged bundle: {type(error).__name__} {str(error)[:80]}") from None
    return Bundle(config, model, folder)


def model_of(config: BundleConfig, arrays: Arrays) -> Model:
    """The model of which a bundle keeps these arrays."""
    kind: type[Model] = load_model(config.model)
    if CLASSIFY in kind.can and not config.labels:
        raise InputError("a classifier has no labels")
    if config.calibration is not None and not config.calibration.fits(len(config.labels)):
        raise InputError("the calibration of a classifier does not fit its labels")
    return kind.from_parts({**config.facts, "labels": config.labels}, arrays)


def _config(folder: Path) -> BundleConfig:
    path = folder / CONFIG
    if not (folder / SUMS).is_file() or not path.is_file():
        raise not_found(folder, "bundle", "train")
    try:
        if path.stat().st_size > LARGEST_CONFIG_BYTES:
            raise InputError(f"{path} is too large to be a configuration")
        config = BundleConfig.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{path} is not the configuration of a bundle ({where} {first['msg']})") from None
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
        if filesystem.exists(f"{remote}/{SUMS}"):
            return _fetched(filesystem, remote, os.fspath(path))
        return _newest_of_stream(filesystem, remote, os.fspath(path))


def _fetched(filesystem: Any, remote: str, url: str) -> Bundle:
    """The local copy of a bundle in a store."""
    with reading(url):
        sums = filesystem.cat_file(f"{remote}/{SUMS}", end=LARGEST_SUMS_BYTES)

    def fetch(folder: Path) -> None:
        for line in sums.decode("utf-8", "replace").splitlines():
            found = SUM_LINE.fullmatch(line)
            if not found:
                raise InputError(f"{url}/{SUMS} is damaged; write the bundle again")
            with reading(f"{url}/{found[2]}"):
                filesystem.get_file(f"{remote}/{found[2]}", str(folder / found[2]))
        (folder / SUMS).write_bytes(sums)
        open_bundle(folder).verify()

    return open_bundle(local_copy("bundles", hashlib.sha256(sums).hexdigest()[:32], BUNDLE, fetch))


def _newest_of_stream(filesystem: Any, remote: str, url: str) -> Bundle:
    """The bundle of the newest snapshot that a stream has uploaded."""
    for _ in range(TRIES):
        version = newest_version(url)
        if version is None or SUMS not in version.files:
            raise InputError(f"{url} is not a complete bundle; make it with: manyhands train … --out {url}")
        try:
            return _fetched(filesystem, f"{remote}/{version.folder}", f"{url}/{version.folder}")
        except InputError:
            if version == newest_version(url):
                raise
    raise InputError(f"{url} is replaced before it can be fetched; have snapshots come further apart")


def identity_of(path: StrPath) -> tuple[object, ...] | None:
    """What changes when another bundle takes the place of the one at a path or URL; None if there is none.

    In a store, one or two small objects are read.
    """
    url = os.fspath(path)
    with reading(url):
        filesystem, place = url_to_fs(url)
        try:
            if isinstance(filesystem, LocalFileSystem):
                folder = Path(place).resolve()
                found = (folder / SUMS).stat()
                return str(folder), found.st_ino, found.st_mtime_ns, found.st_size
            return (filesystem.cat_file(f"{place.rstrip('/')}/{SUMS}", end=LARGEST_SUMS_BYTES),)
        except FileNotFoundError:
            version = None if isinstance(filesystem, LocalFileSystem) else newest_version(url)
            return (version.folder,) if version else None


def load_classifier(path: StrPath) -> Bundle:
    """Open a bundle that can tell labels."""
    bundle = load_bundle(path)
    if not bundle.labels:
        raise UsageError(
            f"{path} holds word vectors ({bundle.config.model}), which cannot predict labels; "
            "use them with nearest, analogy, evaluate, convert or project"
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
