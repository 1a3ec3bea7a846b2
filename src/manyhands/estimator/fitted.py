"""What a fitted ``TextClassifier`` knows: a bundle, and its classes as ``y`` had them."""

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from manyhands.bundle.bundle import BUNDLE, Bundle, BundleConfig, load_classifier, model_of, save_bundle
from manyhands.bundle.card import model_card
from manyhands.errors import InputError
from manyhands.estimator.inputs import KINDS, Classes, Form, names_of
from manyhands.models.model import FEATURES, Arrays, Featured
from manyhands.parallel import map_ordered
from manyhands.storage.destination import destination
from manyhands.text.corpus import corpus_of
from manyhands.text.ngram_names import NgramNames
from manyhands.text.ragged import Ragged, concatenate, from_arrow
from manyhands.text.vocabulary import Vocabulary

Floats = npt.NDArray[np.float64]

ROWS_AT_ONCE = 2048
MOST_BYTES = 16  # of a number
SAMPLE_BYTES = 64 << 20  # of texts to name features by
MULTI_LABEL_FORM: dict[bool, Form] = {False: "label", True: "lists"}


@dataclass(frozen=True)
class Fitted:
    """``vocabulary`` and ``record`` are None where the bundle that was loaded keeps none.

    ``memory`` is the optimizer's, which bundles do not keep. ``sample`` are normalised texts that were
    learnt, to name features by: no copy on disk holds them, and other processes get none.
    """

    bundle: Bundle
    classes: Classes
    form: Form
    vocabulary: Vocabulary | None
    record: dict[str, Any] | None = None
    memory: Arrays = field(default_factory=dict)
    sample: Ragged | None = None

    @property
    def multi_label(self) -> bool:
        return self.form != "label"

    @cached_property
    def names(self) -> NgramNames:
        """Names of features, by the n-grams that were learnt or, of a bundle, by the words that it keeps."""
        if self.sample is not None:
            return self.features.names(corpus_of(self.sample))
        if self.vocabulary is None:
            raise InputError("the bundle keeps no words to name features by; give texts")
        return self.features.names(corpus_of(from_arrow(self.vocabulary.words)))

    @property
    def features(self) -> Featured:
        model: Featured = self.bundle.need(FEATURES, "have no features with weights of their own")
        return model

    @cached_property
    def columns(self) -> npt.NDArray[np.int64] | None:
        """Where the model has each class; None where all are in the same order."""
        place = {name: number for number, name in enumerate(self.bundle.labels)}
        columns = np.array([place[name] for name in names_of(self.classes)])
        return None if (columns == np.arange(len(columns))).all() else columns

    def chances(self, texts: Ragged, threads: int) -> Floats:
        """The probability of each class; they add up to 1 unless a text may have several."""
        chances = self._scores(texts, threads).astype(np.float64)
        if self.columns is not None:
            chances = chances[:, self.columns]
        if not self.multi_label:  # one-vs-all would not add up by itself
            sums = chances.sum(axis=1, keepdims=True)
            even = np.full_like(chances, 1 / chances.shape[1])
            np.divide(chances, sums, out=even, where=sums > 0)
            return even
        return chances

    def _scores(self, texts: Ragged, threads: int) -> npt.NDArray[np.float32]:
        if len(texts) <= ROWS_AT_ONCE:
            return self.bundle.scores(texts)
        starts = range(0, len(texts), ROWS_AT_ONCE)
        parts = (Ragged(texts.data, texts.offsets[start : start + ROWS_AT_ONCE + 1]) for start in starts)
        return np.concatenate(list(map_ordered(self.bundle.scores, parts, threads)))

    def save(self, folder: str | os.PathLike[str], overwrite: bool) -> None:
        kind = "U" if self.classes.dtype.kind == "U" else self.classes.dtype.str
        facts = {"dtype": kind, "classes": self.classes.tolist(), "multi_label": self.multi_label}
        facts["form"] = self.form
        config = self.bundle.config
        config = config.model_copy(update={"facts": {**config.facts, "estimator": facts}})
        with destination(os.fspath(folder), overwrite, BUNDLE) as place:
            card = model_card(config, self.record or {})
            save_bundle(place, replace(self.bundle, config=config), self.vocabulary, card, self.record)

    def plain(self) -> dict[str, Any]:
        """As dicts and arrays, so that a copy on disk holds no class of this package but the estimator."""
        words = None if self.vocabulary is None else from_arrow(self.vocabulary.words)
        arrays = self.bundle.model.arrays()
        return {
            "config": self.bundle.config.model_dump(),
            "arrays": {name: np.ascontiguousarray(array) for name, array in arrays.items()},
            "classes": self.classes,
            "form": self.form,
            "words": None if words is None else (words.data, words.offsets),
            "counts": None if self.vocabulary is None else self.vocabulary.counts,
            "record": self.record,
            "memory": self.memory,
        }


def from_plain(parts: dict[str, Any]) -> Fitted:
    """The opposite of ``Fitted.plain``."""
    config = BundleConfig.model_validate(parts["config"])
    vocabulary = None
    if parts["words"] is not None:
        words = Ragged(*parts["words"]).arrow().cast("large_string")
        vocabulary = Vocabulary(words, parts["counts"])
    bundle = Bundle(config, model_of(config, parts["arrays"]))
    return Fitted(bundle, parts["classes"], parts["form"], vocabulary, parts["record"], parts["memory"])


def open_fitted(folder: str | os.PathLike[str]) -> Fitted:
    """What a bundle holds, whoever made it."""
    bundle = load_classifier(folder)
    classes, form = _classes_in(bundle)
    vocabulary = bundle.vocabulary if bundle.has_vocabulary else None
    return Fitted(bundle, classes, form, vocabulary)


def _classes_in(bundle: Bundle) -> tuple[Classes, Form]:
    """The classes as ``y`` had them; strings, where ``manyhands train`` made the bundle."""
    facts = bundle.config.facts.get("estimator")
    if facts is None:
        return np.unique(bundle.labels), MULTI_LABEL_FORM[bundle.classifier.multi_label]
    try:
        dtype, multi_label = np.dtype(facts["dtype"]), facts["multi_label"]
        form: Form = facts.get("form", MULTI_LABEL_FORM[multi_label])  # older bundles know no matrices
        sound = dtype.kind in KINDS and dtype.itemsize <= MOST_BYTES and isinstance(multi_label, bool)
        sound = sound and form in get_args(Form) and multi_label == (form != "label")
        classes = np.array(facts["classes"] if sound else [], dtype)
        sound = sound and sorted(names_of(classes)) == sorted(bundle.labels)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        sound = False
    if not sound:
        raise InputError(f"{bundle.folder} is a damaged bundle: its classes do not fit its labels")
    return classes, form


def sample_of(parts: list[Ragged]) -> Ragged:
    """The texts of all parts, or of evenly spread rows as far as memory is bounded.

    >>> from manyhands.text.ragged import from_strings
    >>> sample_of([from_strings(["a", "b"]), from_strings(["c"])]).strings()
    ['a', 'b', 'c']
    """
    texts = concatenate(parts)
    if texts.size <= SAMPLE_BYTES:
        return texts
    return texts.take(np.arange(0, len(texts), -(-texts.size // SAMPLE_BYTES)))
