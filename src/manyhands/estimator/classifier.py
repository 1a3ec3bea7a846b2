"""``TextClassifier``: the same engine as ``manyhands train``, with the manners of scikit-learn."""

import inspect
import os
import time
from collections.abc import Mapping
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state

from manyhands.bundle.bundle import Bundle
from manyhands.catalog import LEARNERS, load
from manyhands.estimator.fitted import Fitted, Floats, from_plain, open_fitted
from manyhands.estimator.inputs import (
    BadInputError,
    BadSettingError,
    classes_of,
    labels_of,
    targets_of,
    texts_of,
    value_errors,
    weight_of_class,
    weights_of,
)
from manyhands.machine import cores, resources_for
from manyhands.records import Silent
from manyhands.run.record import config_of, record_of
from manyhands.settings import TextSettings, nearest
from manyhands.spread.single import Single
from manyhands.text.corpus import corpus_of, word_counts
from manyhands.text.labelled_rows import LabelledRows
from manyhands.text.normalise import Normaliser
from manyhands.text.vocabulary import merge_vocabularies, vocabulary_from_counts
from manyhands.training.job import Job, job_for
from manyhands.training.objective import weighted_by_class
from manyhands.training.splits import Splits

# The settings of all classifiers; None stands for the model's own default.
MODEL_SETTINGS = tuple(
    dict.fromkeys(
        name
        for model in LEARNERS
        if (learner := load(LEARNERS, "model", model)).learns == "labels"
        for name in learner.Settings.model_fields
        if name != "seed"  # scikit-learn calls it random_state
    )
)
THRESHOLD = 0.5
LEAST = float(np.finfo(np.float32).tiny)  # a probability of 0 has a finite logarithm


class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify texts; the input is a list (array, column, Arrow array) of strings, not a matrix.

    Where a parameter is None, the model's own default holds. ``class_weight`` is None, "balanced",
    or a dict from label to weight. With ``deterministic`` and a ``random_state``, the same input
    gives the same weights on any number of threads.

    ``y`` holds strings, integers or booleans, and ``predict`` gives back the same kind. Or it holds
    a list (tuple, set) of labels for each text: then every label is judged by itself, ``predict``
    gives a list of tuples with the labels whose probability is 0.5 at least, and ``score`` is the
    share of texts whose labels are all right.

    >>> texts, labels = ["good food", "so good", "bad food", "so bad"], ["yes", "yes", "no", "no"]
    >>> classifier = TextClassifier(min_count=1, random_state=0).fit(texts, labels)
    >>> classifier.predict(["a good one", "bad"]).tolist()
    ['yes', 'no']
    """

    def __init__(self, **parameters: Any) -> None:
        known = inspect.signature(type(self).__init__).parameters
        for name in parameters:
            if name not in known:
                raise TypeError(f"there is no parameter '{name}'; {nearest(name, [*known][1:])}")
        for name, parameter in [*known.items()][1:]:
            setattr(self, name, parameters.get(name, parameter.default))

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from nothing. A row of weight 0 is as if it had not been given."""
        with value_errors():
            return self._learn(X, y, (), sample_weight, None)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Go on from what was learnt, with all epochs over these rows, as ``--continue-from`` does.

        Every class in ``classes`` gets a place, also those that ``y`` does not hold yet; labels
        that are new in a later call get one then. The first call needs rows of two classes. Few
        large calls learn better than many small ones, which forget what came before.
        """
        with value_errors():
            announced = () if classes is None else labels_of(classes)
            return self._learn(X, y, announced, sample_weight, getattr(self, "_fitted", None))

    def predict(self, X: Any) -> Any:
        """The most likely class of each text; for several labels, a tuple of labels for each."""
        chances = self.predict_proba(X)
        if self._fitted.multi_label:
            return [tuple(self.classes_[row >= THRESHOLD].tolist()) for row in chances]
        return self.classes_[chances.argmax(axis=1)]

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each of ``classes_``; for several labels, each by itself."""
        fitted = self._known()
        with value_errors():
            return fitted.chances(texts_of(X), self.threads or cores())

    def decision_function(self, X: Any) -> Floats:
        """Two classes: the log-odds of the second. More: the logarithms of ``predict_proba``.

        For several labels, the log-odds of each.
        """
        chances = self.predict_proba(X)
        logs: Floats = np.log(np.maximum(chances, LEAST))
        if self._fitted.multi_label:
            odds: Floats = logs - np.log(np.maximum(1 - chances, LEAST))
            return odds
        return logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of texts that are classified rightly; of several labels, all have to be right."""
        if not self._known().multi_label:
            return float(super().score(X, y, sample_weight))
        found = self.predict(X)
        truth = targets_of(y, len(found))
        rows = np.split(truth.values, truth.offsets[1:-1])
        right = [set(labels) == set(row.tolist()) for labels, row in zip(found, rows, strict=True)]
        return float(np.average(right, weights=sample_weight))

    def save(self, folder: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write a bundle, as ``manyhands train`` does: arrays and JSON, and no code in it."""
        with value_errors():
            self._known().save(folder, overwrite)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Open a bundle, of ``save`` or of ``manyhands train``; it predicts the same."""
        with value_errors():
            fitted = open_fitted(folder)
        config = fitted.bundle.config
        own = {name: config.settings[name] for name in MODEL_SETTINGS if name in config.settings}
        seed = config.settings.get("seed")
        return cls(model=config.model, random_state=seed, **own, **config.text.model_dump())._adopt(fitted)

    def _known(self) -> Fitted:
        if not hasattr(self, "classes_"):
            raise NotFittedError("this TextClassifier has learnt nothing yet; call fit first")
        return self._fitted

    def _adopt(self, fitted: Fitted) -> Self:
        self._fitted = fitted
        self.classes_ = fitted.classes
        return self

    def _learn(self, X: Any, y: Any, announced: Any, sample_weight: Any, before: Fitted | None) -> Self:
        began = time.monotonic()
        if y is None:
            raise BadInputError("this classifier requires y to be passed, but the target y is None")
        texts = texts_of(X)
        targets, weights = targets_of(y, len(texts)), weights_of(sample_weight, len(texts))
        if not weights.all():
            rows = np.flatnonzero(weights)
            texts, targets, weights = texts.take(rows), targets.take(rows), weights[rows]
        classes = classes_of([before.classes if before else (), announced, targets.values])
        settings = TextSettings.create(lower=self.lower, punctuation=self.punctuation, html=self.html)
        if before is not None and targets.multi_label != before.multi_label:
            raise BadInputError("y has several labels for a text, and had one before, or the other way round")
        if before is not None and settings != before.bundle.config.text:
            raise BadSettingError("lower, punctuation or html changed since the first call; call fit instead")
        job = self._job(before.bundle if before else None, targets.multi_label)
        corpus = corpus_of(Normaliser(settings).ragged(texts))
        examples = LabelledRows(corpus, targets.numbered(classes), weights.astype(np.float32))
        if isinstance(self.class_weight, Mapping):
            examples = weighted_by_class(examples, weight_of_class(self.class_weight, classes))
        outcome = Single().run(job, examples, None, Silent())
        splits = Splits(examples, None, None, settings, "as-is", None)
        vocabulary = vocabulary_from_counts(corpus.words, word_counts(corpus, 1))
        if before is not None and before.vocabulary is not None:
            vocabulary = merge_vocabularies(before.vocabulary, vocabulary)
        bundle = Bundle(config_of(job, splits, outcome), outcome.model)
        record = record_of(job, splits, outcome, time.monotonic() - began)
        return self._adopt(Fitted(bundle, classes, targets.multi_label, vocabulary, record))

    def _job(self, previous: Bundle | None, multi_label: bool) -> Job:
        """The parameters as the engine takes them, all checked."""
        given = {name: getattr(self, name) for name in MODEL_SETTINGS}
        own = {name: _plain(value) for name, value in given.items() if value is not None}
        if multi_label and own.setdefault("loss", "one-vs-all") != "one-vs-all":
            raise BadSettingError(f"for several labels loss must be one-vs-all or None, not {self.loss!r}")
        balanced = isinstance(self.class_weight, str) and self.class_weight == "balanced"
        if not (balanced or self.class_weight is None or isinstance(self.class_weight, Mapping)):
            raise BadSettingError("class_weight must be None, 'balanced' or a dict from label to weight")
        if not isinstance(self.model, str) or not isinstance(self.threads, Integral | None):
            raise BadSettingError("model must be the name of one, and threads a whole number or None")
        own["class_weights"] = "balanced" if balanced else "none"
        return job_for(
            self.model,
            {**own, "seed": self._seed(), "deterministic": self.deterministic},
            resources_for(self.memory, None if self.threads is None else int(self.threads)),
            previous=previous,
        )

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        try:
            return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        except ValueError as error:
            raise BadSettingError(str(error)) from None

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        if "_fitted" in state:
            state["_fitted"] = state["_fitted"].plain()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_fitted" in state:
            state = {**state, "_fitted": from_plain(state["_fitted"])}
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.non_deterministic = not self.deterministic
        return tags


def _plain(value: Any) -> Any:
    """numpy's numbers as Python's: grids are often made with numpy."""
    return value.item() if isinstance(value, np.generic) else value


def _signature() -> inspect.Signature:
    """What scikit-learn's tools read: the parameters with their defaults."""
    own: dict[str, Any] = {"model": "ngrams", **dict.fromkeys(MODEL_SETTINGS), "class_weight": None}
    own |= TextSettings().model_dump()
    own |= {"random_state": None, "deterministic": False, "threads": None, "memory": None}
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *(inspect.Parameter(name, kind, default=value) for name, value in own.items()),
        ]
    )


TextClassifier.__init__.__signature__ = _signature()  # type: ignore[attr-defined]
