"""``TextClassifier``: the same engine as ``manyhands train``, with the manners of scikit-learn."""

import inspect
import os
import time
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import TransformerTags, check_random_state
from sklearn.utils.metaestimators import available_if

from manyhands.bundle.bundle import Bundle
from manyhands.bundle.explain import Explanation, explain
from manyhands.bundle.feature_weights import named_weights
from manyhands.catalog import IMPORTED_MODELS, LEARNERS, load, load_model
from manyhands.estimator.fitted import Fitted, Floats, from_plain, open_fitted, sample_of
from manyhands.estimator.inputs import (
    BadInputError,
    BadSettingError,
    Targets,
    classes_of,
    labels_of,
    targets_of,
    texts_of,
    thresholds_of,
    value_errors,
    weight_of_class,
    weights_of,
)
from manyhands.estimator.memory import Remembering
from manyhands.machine import cores, resources_for
from manyhands.models.model import FEATURES
from manyhands.records import Silent
from manyhands.run.record import config_of, record_of
from manyhands.settings import TextSettings, TrainingSettings, nearest
from manyhands.text.corpus import corpus_of, word_counts
from manyhands.text.labelled_rows import LabelledRows
from manyhands.text.normalise import Normaliser
from manyhands.text.vocabulary import merge_vocabularies, vocabulary_from_counts
from manyhands.training.choose import with_choice
from manyhands.training.hold_out import with_calibration
from manyhands.training.job import Job, job_for
from manyhands.training.learn import learn
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
# Of training, all but what has another name here, and what is for long runs that are stopped and paid for.
TRAINING_SETTINGS = tuple(
    name
    for name in TrainingSettings.model_fields
    if name not in ("deterministic", "class_weights", "checkpoint_seconds", "price", "budget")
)
LEAST = float(np.finfo(np.float32).tiny)  # a probability of 0 has a finite logarithm


def _has_features(classifier: Any) -> bool:
    """Whether the model that was chosen has features of which a matrix can be made."""
    known = classifier.model in (*LEARNERS, *IMPORTED_MODELS)
    return known and FEATURES in load_model(classifier.model).can


Method = TypeVar("Method")
_with_features: Callable[[Method], Method] = available_if(_has_features)


class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify texts; the input is a list (array, column, Arrow array) of strings, not a matrix.

    Where a parameter is None, the model's own default holds; parameters of other models are refused.
    ``class_weight`` is None, "balanced", or a dict from label to weight. ``validation_fraction`` is the share
    of the rows that ``fit`` holds out to choose the best epoch by, and to stop early. Settings that are None
    are chosen from the rows, and probabilities calibrated, as by ``manyhands train``; not with ``effort=0``,
    which is quicker where ``GridSearchCV`` or the like call ``fit`` many times. With ``deterministic`` and a
    ``random_state``, the same input gives the same weights on any number of threads.

    ``y`` holds strings, integers or booleans, and ``predict`` gives back the same kind. Or a text may have
    several labels: then ``y`` is a list (tuple, set) of labels for each text, or a matrix of 0 and 1, dense
    or sparse, with a column for each label, and ``predict`` gives tuples or a matrix likewise. Every label is
    judged by itself: a text gets those whose probability is ``threshold`` at least (a number, or a dict from
    label to number; 0.5 by default), and ``score`` is the share of texts whose labels are all right.

    With ``ngrams`` and ``fasttext``, ``transform`` gives the n-grams of texts as a sparse matrix, so that the
    classifier can also stand in front of another one.

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
        """Go on from what was learnt, with all epochs over these rows, where the optimizer was.

        Every class in ``classes`` gets a place, also those that ``y`` does not hold yet; labels
        that are new in a later call get one then. The first call needs rows of two classes. Few
        large calls learn better than many small ones, which forget what came before.
        """
        with value_errors():
            announced = () if classes is None else labels_of(classes)
            return self._learn(X, y, announced, sample_weight, getattr(self, "_fitted", None))

    def predict(self, X: Any) -> Any:
        """The most likely class of each text; for several labels, as ``y`` had them: tuples or a matrix."""
        chances = self.predict_proba(X)
        form = self._fitted.form
        if form == "label":
            return self.classes_[chances.argmax(axis=1)]
        with value_errors():
            chosen = chances >= thresholds_of(self.threshold, self.classes_)
        if form == "lists":
            return [tuple(self.classes_[row].tolist()) for row in chosen]
        return csr_matrix(chosen, dtype=np.int64) if form == "sparse" else chosen.astype(np.int64)

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
        if self._known().form != "lists":
            return float(super().score(X, y, sample_weight))
        found = self.predict(X)
        truth = targets_of(y, len(found))
        rows = np.split(truth.values, truth.offsets[1:-1])
        right = [set(labels) == set(row.tolist()) for labels, row in zip(found, rows, strict=True)]
        return float(np.average(right, weights=sample_weight))

    @_with_features
    def transform(self, X: Any) -> csr_matrix:
        """A row for each text and a column for each feature, an n-gram or several that share a hash.

        ``transform(X) @ coef_.T + intercept_`` are the scores, of which probabilities are made. With
        ``ngrams``, features are scaled by what they tell, and rows have the length 1; with ``fasttext``, a
        number is the feature's share of the text's n-grams.
        """
        fitted = self._known()
        with value_errors():
            rows = fitted.features.features(corpus_of(fitted.bundle.normaliser.ragged(texts_of(X))))
            matrix = csr_matrix(
                (rows.values, rows.ids.astype(np.int32), rows.offsets), (len(rows.offsets) - 1, rows.count)
            )
            matrix.sum_duplicates()
            return matrix

    @_with_features
    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> csr_matrix:
        """``fit``, and the features of the same texts."""
        return self.fit(X, y, sample_weight).transform(X)

    @_with_features
    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """The n-gram of each column of ``transform``; "feature 7" where none is known for column 7.

        Features are hashes. The names are the n-grams of the texts that ``fit`` was given, up to 64 MB of
        them, and after ``load`` or in another process the words alone.
        """
        fitted = self._known()
        with value_errors():
            found = fitted.names.of(np.arange(len(fitted.names)))
        return np.array([name or f"feature {number}" for number, name in enumerate(found)], object)

    def feature_weights(
        self, label: Any = None, top: int | None = None, texts: Any = None
    ) -> list[tuple[str, float]]:
        """N-grams with their weights, from what speaks most for ``label`` to what speaks most against it.

        Of two classes, the second is meant unless one is named. A weight is what the n-gram adds to the
        score of a text, before that is divided by the text's length, as in ``explain``. The names are
        those of ``get_feature_names_out``, or the n-grams of ``texts``; what has no name is left out.

        >>> learnt = TextClassifier(ngrams=1, min_count=1, random_state=0, deterministic=True)
        >>> learnt = learnt.fit(["good food", "so good", "bad food", "so bad"], [1, 1, 0, 0])
        >>> [name for name, weight in learnt.feature_weights() if abs(weight) > 0.1]
        ['good', 'bad']
        """
        fitted = self._known()
        with value_errors():
            if top is not None and (not isinstance(top, Integral) or top < 1):
                raise BadSettingError(f"top is {top!r}; give a whole number from 1 on")
            place = fitted.bundle.labels.index(self._name_of(label))
            names = fitted.names
            if texts is not None:
                names = fitted.features.names(corpus_of(fitted.bundle.normaliser.ragged(texts_of(texts))))
            found = named_weights(fitted.features, names, place, top)
        return [(one.ngram, one.weight) for one in found]

    @property
    def coef_(self) -> npt.NDArray[np.float32]:
        """The coefficients of ``transform``'s columns: a row for each class, or one for two classes."""
        return self._linear()[0]

    @property
    def intercept_(self) -> npt.NDArray[np.float32]:
        return self._linear()[1]

    def explain(self, X: Any, label: Any = None) -> list[Explanation]:
        """What each n-gram of each text adds to the score of ``label``, by default of its likeliest."""
        fitted = self._known()
        with value_errors():
            name = None if label is None else self._name_of(label)
            return [explain(fitted.bundle, text, name) for text in texts_of(X).strings()]

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

    def _name_of(self, label: Any) -> str:
        """The name by which the bundle knows a class; if none is given, the second of two."""
        known = self.classes_.tolist()
        if label is None and len(known) == 2 and not self._fitted.multi_label:
            label = known[1]
        if label not in known:
            listed = ", ".join(map(repr, known[:20]))
            raise BadSettingError(f"label is {label!r}, which is not one of classes_; give one of {listed}")
        return str(known[known.index(label)])

    def _linear(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        if not hasattr(self, "classes_") or not _has_features(self):
            raise AttributeError("there are no coefficients before fit, or of models without features")
        coefficients, intercepts = self._fitted.features.linear()
        columns = self._fitted.columns
        if columns is None:
            return coefficients, intercepts
        if len(intercepts) == len(columns):
            return coefficients[columns], intercepts[columns]
        return -coefficients, -intercepts  # two classes that the model has in the other order

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
        classes = classes_of([before.classes if before else (), announced, _all_columns(targets)])
        settings = TextSettings.create(lower=self.lower, punctuation=self.punctuation, html=self.html)
        if before is not None:
            _check_goes_on(before, targets, settings)
        if not targets.multi_label and self.threshold is not None:
            raise BadSettingError("threshold is for texts with several labels; y has one for each text")
        thresholds_of(self.threshold, classes)
        job = self._job(before.bundle if before else None, targets.multi_label)
        normal = Normaliser(settings).ragged(texts)
        corpus = corpus_of(normal)
        examples = LabelledRows(corpus, targets.numbered(classes), weights.astype(np.float32))
        if isinstance(self.class_weight, Mapping):
            examples = weighted_by_class(examples, weight_of_class(self.class_weight, classes))
        train, valid = self._held_out(examples, job.settings.seed)
        job = with_choice(job, train, Silent())
        crew = Remembering(before.memory if before else {})
        outcome = with_calibration(job, learn(job, train, valid, crew, Silent()), train, valid, Silent())
        splits = Splits(train, valid, None, settings, "as-is", None)
        vocabulary = vocabulary_from_counts(corpus.words, word_counts(corpus, 1))
        if before is not None and before.vocabulary is not None:
            vocabulary = merge_vocabularies(before.vocabulary, vocabulary)
        bundle = Bundle(config_of(job, splits, outcome), outcome.model)
        record = record_of(job, splits, outcome, time.monotonic() - began)
        sample = sample_of([before.sample, normal] if before and before.sample else [normal])
        fitted = Fitted(bundle, classes, targets.form, vocabulary, record, crew.memory(), sample)
        return self._adopt(fitted)

    def _held_out(self, examples: LabelledRows, seed: int) -> tuple[LabelledRows, LabelledRows | None]:
        """The rows to train on, and those to choose the epoch by."""
        share = self.validation_fraction
        if share is None:
            if self.early_stopping is not None:
                raise BadSettingError("early_stopping needs rows to judge by; give validation_fraction too")
            return examples, None
        if not isinstance(share, Real) or not 0 < float(share) < 1:
            raise BadSettingError(f"validation_fraction is {share!r}; give a number between 0 and 1, or None")
        order = np.random.default_rng(seed).permutation(len(examples))
        count = int(np.ceil(float(share) * len(examples)))
        return examples.take(np.sort(order[count:])), examples.take(np.sort(order[:count]))

    def _job(self, previous: Bundle | None, multi_label: bool) -> Job:
        """The parameters as the engine takes them, all checked."""
        given = {name: getattr(self, name) for name in (*MODEL_SETTINGS, *TRAINING_SETTINGS)}
        own = {name: _plain(value) for name, value in given.items() if value is not None}
        if previous is not None and previous.config.model == self.model:  # what fit has chosen, among others
            before = {name: previous.config.settings.get(name) for name in MODEL_SETTINGS}
            own = {**{name: value for name, value in before.items() if value is not None}, **own}
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
        tags.classifier_tags.multi_label = True
        if _has_features(self):
            tags.transformer_tags = TransformerTags(preserves_dtype=[])  # texts are no numbers
        return tags


def _all_columns(targets: Targets) -> Any:
    """The labels of all rows; of a matrix, every column is one, also where it holds only 0."""
    return np.arange(targets.columns) if targets.columns else targets.values


def _check_goes_on(before: Fitted, targets: Targets, settings: TextSettings) -> None:
    if targets.multi_label != before.multi_label:
        raise BadInputError("y has several labels for a text, and had one before, or the other way round")
    if bool(targets.columns) != (before.form in ("matrix", "sparse")):
        raise BadInputError("y is a matrix, and was none before, or the other way round")
    if targets.columns not in (0, len(before.classes)):
        raise BadInputError(f"y has {targets.columns} columns, and had {len(before.classes)} before")
    if settings != before.bundle.config.text:
        raise BadSettingError("lower, punctuation or html changed since the first call; call fit instead")


def _plain(value: Any) -> Any:
    """numpy's numbers as Python's: grids are often made with numpy."""
    return value.item() if isinstance(value, np.generic) else value


def _signature() -> inspect.Signature:
    """What scikit-learn's tools read: the parameters with their defaults."""
    own: dict[str, Any] = {"model": "ngrams", **dict.fromkeys((*MODEL_SETTINGS, *TRAINING_SETTINGS))}
    own |= {"validation_fraction": None, "class_weight": None, "threshold": None}
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
