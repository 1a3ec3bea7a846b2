"""What callers of scikit-learn give, as the engine takes it: texts, labels and weights, all checked."""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import csr_array, issparse
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from manyhands.errors import InputError, ManyhandsError, UsageError
from manyhands.kernels.compile import Ints
from manyhands.text.labelled_rows import Labels
from manyhands.text.ragged import Ragged, from_arrow, from_strings
from manyhands.text.utf8 import valid_utf8

Classes = npt.NDArray[Any]
# How ``y`` says the labels of a text: one, a list of them, or a row of a matrix of 0 and 1.
Form = Literal["label", "lists", "matrix", "sparse"]

SEVERAL = (list, tuple, Set)
OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
KINDS = "biufUO"
THRESHOLD = 0.5
NO_INDICATORS = (
    "y is a matrix of other values than 0 and 1; for several targets, wrap the classifier in "
    "scikit-learn's MultiOutputClassifier"
)
STRINGS = "OU"  # numpy's letters for arrays of Python objects and of strings


class BadInputError(InputError, ValueError):
    """Data that cannot be used; scikit-learn's tools expect a ``ValueError``."""


class BadSettingError(UsageError, ValueError):
    """A parameter that cannot be used."""


@contextmanager
def value_errors() -> Iterator[None]:
    """Errors of the engine as scikit-learn's tools expect them, with parameters named as in Python."""
    try:
        yield
    except ManyhandsError as error:
        if isinstance(error, ValueError) or not isinstance(error, InputError | UsageError):
            raise
        message = OPTION.sub(lambda option: option[1].replace("-", "_"), str(error))
        kind = BadInputError if isinstance(error, InputError) else BadSettingError
        raise kind(message) from error


def texts_of(given: Any) -> Ragged:
    """The texts of a list, an array, a column of a table or an Arrow array, as UTF-8.

    >>> texts_of(["good", b"bad"]).strings()
    ['good', 'bad']
    >>> texts_of("good")
    Traceback (most recent call last):
    manyhands.estimator.inputs.BadInputError: X is a single str; give a list of texts, [text] for one of them
    """
    kind = type(given).__name__
    if isinstance(given, str | bytes):
        raise BadInputError(f"X is a single {kind}; give a list of texts, [text] for one of them")
    shape = getattr(given, "shape", None)
    if shape is not None and len(shape) != 1:
        what = "is a sparse matrix of" if issparse(given) else "has"
        raise BadInputError(f"X {what} the shape {tuple(shape)}; give texts, one a row: a list or one column")
    if isinstance(given, Mapping | Set):
        raise BadInputError(f"X is of type {kind}, which has no rows; give a list of texts")
    texts = _arrow_texts(given) if isinstance(given, pa.Array | pa.ChunkedArray) else _plain_texts(given)
    if not len(texts):
        raise BadInputError("X holds no texts; give one at least")
    return texts


def _arrow_texts(given: Any) -> Ragged:
    if given.null_count:
        raise BadInputError(f"X[{given.is_null().to_pylist().index(True)}] is missing; leave such rows out")
    kind = given.type.value_type if pa.types.is_dictionary(given.type) else given.type
    if not any(
        is_a(kind) for is_a in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    ):
        if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            raise BadInputError(f"X is of type {kind}, not of texts; give strings")
        return _checked_utf8(from_arrow(given.cast(kind)))
    return from_arrow(given.cast(pa.large_string()))


def _plain_texts(given: Any) -> Ragged:
    if hasattr(given, "__array__"):
        items = np.asarray(given).tolist()
    elif hasattr(given, "__iter__"):
        items = list(given)
    else:
        raise BadInputError(f"X is of type {type(given).__name__}; give a list of texts")
    kinds = set(map(type, items))
    for place, item in enumerate(items if not kinds <= {str, bytes} else ()):
        if is_missing(item):
            raise BadInputError(f"X[{place}] is missing ({item}); leave such rows out")
        if not isinstance(item, str | bytes):
            raise BadInputError(f"X[{place}] is of type {type(item).__name__}, not a text; give strings")
    try:
        texts = from_strings(items)
    except UnicodeEncodeError as error:
        place = items.index(error.object)
        raise BadInputError(f"X[{place}] holds half a character (a lone surrogate); mend the text") from None
    return _checked_utf8(texts) if bytes in kinds else texts


def _checked_utf8(texts: Ragged) -> Ragged:
    bad = np.flatnonzero(~valid_utf8(texts))
    if len(bad):
        raise BadInputError(f"X[{bad[0]}] is not valid UTF-8; decode the bytes first")
    return texts


def is_missing(item: Any) -> bool:
    """None, NaN, or what pandas puts where nothing is."""
    return (
        item is None
        or (isinstance(item, float) and item != item)
        or type(item).__name__ in ("NAType", "NaTType")
    )


@dataclass(frozen=True)
class Targets:
    """The labels of row ``i``, as they were given: ``values[offsets[i]:offsets[i + 1]]``."""

    values: Classes
    offsets: Ints
    form: Form
    columns: int = 0  # of a matrix, whose labels are the numbers of its columns

    @property
    def multi_label(self) -> bool:
        return self.form != "label"

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, rows: Ints) -> "Targets":
        places = Labels(np.arange(len(self.values), dtype=np.int32), self.offsets, []).take(rows)
        return replace(self, values=self.values[places.ids], offsets=places.offsets)

    def numbered(self, classes: Classes) -> Labels:
        """By places among ``classes``, which are sorted and hold all labels; sorted within a row."""
        ids = np.searchsorted(classes, self.values).astype(np.int32)
        rows = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        return Labels(ids[np.lexsort((ids, rows))], self.offsets, names_of(classes), self.multi_label)


def targets_of(given: Any, rows: int) -> Targets:
    """The labels of all rows: one each, a list, tuple or set of them each, or a row of 0 and 1 each."""
    if isinstance(given, pa.Array | pa.ChunkedArray):
        given = given.to_pylist()
    if issparse(given) or _is_matrix(given):
        return _columns(given, rows)
    if _holds_several(given):
        return _several(list(given), rows)
    values = labels_of(given)
    try:
        check_classification_targets(values)
    except (ValueError, TypeError) as error:
        raise BadInputError(str(error)) from error
    if len(values) != rows:
        raise BadInputError(f"X has {rows} texts and y has {len(values)} labels; give a label for each text")
    return Targets(values, np.arange(rows + 1), "label")


def _is_matrix(given: Any) -> bool:
    """An array or a table of several columns. Lists are lists of labels, also where they are equally long."""
    shape: tuple[int, ...] = getattr(given, "shape", ())
    return len(shape) == 2 and shape[1] > 1


def _columns(given: Any, rows: int) -> Targets:
    """A matrix with a row for each text and a column for each label, of 0 and 1."""
    if given.shape[0] != rows:
        raise BadInputError(f"X has {rows} texts and y has {given.shape[0]} rows; give a row for each text")
    sparse, matrix = issparse(given), csr_array(given if issparse(given) else _numbers_in(given), copy=True)
    if not np.isin(matrix.data, (0, 1)).all():
        raise BadInputError(NO_INDICATORS)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    labels, offsets = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    return Targets(labels, offsets, "sparse" if sparse else "matrix", given.shape[1])


def _numbers_in(given: Any) -> npt.NDArray[Any]:
    values = np.asarray(given)
    if values.dtype.kind not in "biuf":
        raise BadInputError(NO_INDICATORS)
    return values


def _holds_several(given: Any) -> bool:
    """Whether a row has a list of labels; the rows of a matrix are arrays, and none."""
    plain = isinstance(given, list | tuple)
    items = given if plain else np.asarray(given)
    return (plain or (items.dtype == object and items.ndim == 1)) and any(
        isinstance(item, SEVERAL) for item in items
    )


def _several(given: list[Any], rows: int) -> Targets:
    for place, item in enumerate(given):
        if not isinstance(item, SEVERAL):
            raise BadInputError(f"y[{place}] is not a list of labels, as others are; give one for each text")
    if len(given) != rows:
        raise BadInputError(f"X has {rows} texts and y has {len(given)} lists of labels")
    try:
        distinct = [list(dict.fromkeys(item)) for item in given]
    except TypeError:
        raise BadInputError("y holds lists inside lists of labels; give a flat one for each text") from None
    offsets = np.cumsum([0, *map(len, distinct)])
    flat = list(chain.from_iterable(distinct))
    return Targets(labels_of(flat) if flat else np.empty(0, "U1"), offsets, "lists")


def labels_of(given: Any) -> Classes:
    """An array of labels of one kind, none of them missing.

    >>> labels_of([1, "a"])
    Traceback (most recent call last):
    manyhands.estimator.inputs.BadInputError: label 0 of y is 1 beside strings; give labels of one kind
    """
    try:
        values = np.asarray(given)
        values = column_or_1d(values, warn=True)
    except ValueError as error:
        raise BadInputError(str(error)) from error
    if values.dtype.kind == "U" and isinstance(given, list | tuple):  # numpy made strings of all
        for place, label in enumerate(given):
            if not isinstance(label, str):
                raise BadInputError(
                    f"label {place} of y is {label!r} beside strings; give labels of one kind"
                )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise BadInputError("y holds NaN or infinity; leave such rows out")
    if values.dtype.kind == "O":
        for place, label in enumerate(values):
            if is_missing(label):
                raise BadInputError(f"label {place} of y is missing ({label}); leave such rows out")
    if values.dtype.kind not in KINDS:
        raise BadInputError(f"labels of type {values.dtype} cannot be used; give strings or whole numbers")
    return np.asarray(values)


def classes_of(parts: Sequence[Any]) -> Classes:
    """All classes of these arrays, sorted.

    >>> classes_of([np.array(["b"]), ["a", "b"]]).tolist()
    ['a', 'b']
    """
    arrays = [np.asarray(part) for part in parts if len(part)]
    kinds = {"U" if array.dtype.kind in STRINGS else array.dtype.kind for array in arrays}
    try:
        if len(kinds) > 1:
            raise TypeError
        classes = np.unique(np.concatenate(arrays)) if arrays else np.empty(0)
    except TypeError:
        raise BadInputError("some labels are strings and some are numbers; give labels of one kind") from None
    if len(classes) < 2:
        only = f"class only, {names_of(classes)[0]!r}" if len(classes) else "class"
        raise BadInputError(
            f"y holds {'one' if len(classes) else 'no'} {only}; give rows of two classes at least"
        )
    return classes


def names_of(classes: Classes) -> list[str]:
    """The names by which a bundle knows the classes."""
    return [str(label) for label in classes.tolist()]


def weights_of(given: Any, rows: int) -> npt.NDArray[np.float64]:
    """How much each row counts."""
    if given is None:
        return np.ones(rows)
    try:
        weights = np.asarray(given, np.float64)
    except (ValueError, TypeError):
        raise BadInputError("sample_weight has values that are not numbers") from None
    if weights.shape != (rows,):
        raise BadInputError(
            f"sample_weight has the shape {weights.shape}; give one number for each of {rows} texts"
        )
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise BadInputError("sample_weight holds negative numbers, NaN or infinity; give numbers from 0 on")
    if not weights.any():
        raise BadInputError("all numbers in sample_weight are zero, so that no row has any weight")
    return weights


def weight_of_class(given: Any, classes: Classes) -> npt.NDArray[np.float64]:
    """The weights of a dict label -> weight; labels that it does not name have 1."""
    place = {label: number for number, label in enumerate(classes.tolist())}
    weights = np.ones(len(classes))
    for label, weight in given.items():
        if label not in place:
            raise BadSettingError(f"class_weight names {label!r}, which is not a label of y")
        if not isinstance(weight, Real) or not 0 <= float(weight) < np.inf:
            raise BadSettingError(f"class_weight of {label!r} is {weight}; give a number from 0 on")
        weights[place[label]] = weight
    return weights


def thresholds_of(given: Any, classes: Classes) -> npt.NDArray[np.float64]:
    """The least probability at which a text gets each label: one for all, or a dict label -> number."""
    if isinstance(given, Mapping):
        place = {label: number for number, label in enumerate(classes.tolist())}
        for label in given:
            if label not in place:
                raise BadSettingError(f"threshold names {label!r}, which is not a label of y")
        chosen = {place[label]: value for label, value in given.items()}
    else:
        chosen = dict.fromkeys(range(len(classes)), THRESHOLD if given is None else given)
    thresholds = np.full(len(classes), THRESHOLD)
    for number, value in chosen.items():
        if not isinstance(value, Real) or not 0 <= float(value) <= 1:
            raise BadSettingError(f"threshold is {value!r}; give a number from 0 to 1")
        thresholds[number] = value
    return thresholds
