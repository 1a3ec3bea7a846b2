"""A fastText classifier as plain arrays, and the checks that make them safe to compute with.

Arrays come out of files that anybody may have written. Behind these checks no kernel can reach
outside an array. The input may hold anything, even what is not a number: of every tenth for which it
has no thread, fastText 0.9.3 leaves the memory as it was, and there the words that training never met
keep it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from manyhands.errors import InputError
from manyhands.kernel import Bytes, Ints
from manyhands.models.fasttext_features import LONGEST_NGRAM
from manyhands.models.fasttext_rows import CENTROIDS, Rows, codes_in_row, largest
from manyhands.models.fasttext_scores import LOSSES, MOST_COUNTED
from manyhands.models.fasttext_tables import Int32s

LABEL_PREFIX = "__label__"
MOST_DIM = 1 << 16
MOST_BUCKETS = (1 << 31) - 1
MOST_ENTRIES = (1 << 31) - 1
LARGEST_WEIGHT = 1e8  # beyond, even the products of sound texts might not be finite


class FastTextArgs(NamedTuple):
    """The settings of the training that prediction depends on."""

    dim: int
    word_ngrams: int
    loss: str
    bucket: int
    minn: int
    maxn: int


@dataclass(frozen=True)
class FastTextFile:
    """All that a fastText file says about classifying; ``checked`` before anything computes with it."""

    where: str
    args: FastTextArgs
    labels: list[str]
    label_counts: Ints
    letters: Bytes  # of the words, then of the labels, prefix and all
    starts: Ints
    pruned: bool
    kept_buckets: Int32s
    kept_rows: Int32s
    inputs: Rows
    outputs: Rows

    @property
    def words(self) -> int:
        return len(self.starts) - 1 - len(self.labels)


def broken(where: str, what: str) -> InputError:
    """The error for a model that cannot be used.

    >>> print(broken("a.bin", "it has no labels"))
    a.bin is no fastText classifier that can be used: it has no labels; fetch or save it again
    """
    return InputError(f"{where} is no fastText classifier that can be used: {what}; fetch or save it again")


def checked(model: FastTextFile) -> FastTextFile:
    """The same model, or an ``InputError`` that says what is wrong with it."""
    what = check_args(model.args) or _words_fault(model) or _pruning_fault(model)
    what = what or _rows_fault("input", model.inputs, model.args.dim)
    what = what or _rows_fault("output", model.outputs, model.args.dim)
    what = what or _height_fault(model) or _weights_fault(model.outputs)
    if what:
        raise broken(model.where, what)
    return model


def check_args(args: FastTextArgs) -> str:
    """What is wrong with the settings; nothing if they are fine."""
    bounds = {
        "dim": (1, MOST_DIM),
        "word_ngrams": (0, LONGEST_NGRAM),
        "bucket": (0, MOST_BUCKETS),
        "minn": (0, LONGEST_NGRAM),
        "maxn": (0, LONGEST_NGRAM),
    }
    for name, (low, high) in bounds.items():
        value = getattr(args, name)
        if not low <= value <= high:
            return f"its {name} is {value}, not from {low} to {high}"
    if args.loss not in LOSSES:
        return f"its loss is {args.loss}, not one of {', '.join(LOSSES)}"
    if 0 < args.maxn < args.minn:
        return f"its minn is {args.minn}, above its maxn of {args.maxn}"
    if uses_ngrams(args) and not args.bucket:
        return "it uses n-grams but has no buckets for them"
    return ""


def uses_ngrams(args: FastTextArgs) -> bool:
    return args.word_ngrams > 1 or args.maxn > 0


def _words_fault(model: FastTextFile) -> str:
    starts, labels = model.starts, model.labels
    if not labels or len(set(labels)) != len(labels):
        return "two of its labels are the same" if labels else "it has no labels"
    if len(model.label_counts) != len(labels):
        return f"it has {len(labels)} labels but counts of {len(model.label_counts)}"
    # The sum of huge counts might wrap round, so each is looked at first.
    if model.label_counts.min() < 0 or model.label_counts.max() >= MOST_COUNTED:
        return "a label's count is out of bounds"
    if model.label_counts.astype(np.float64).sum() >= MOST_COUNTED:
        return "the counts of its labels are out of bounds"
    if not len(labels) < len(starts) <= MOST_ENTRIES:
        return "it has fewer words and labels than it should, or too many"
    if starts[0] != 0 or starts[-1] != len(model.letters) or (starts[1:] < starts[:-1]).any():
        return "its words do not stand one after the other"
    return ""


def _pruning_fault(model: FastTextFile) -> str:
    buckets, rows = model.kept_buckets, model.kept_rows
    if len(buckets) != len(rows) or (len(rows) and not model.pruned):
        return "its list of kept n-grams is not whole"
    if len(buckets) and (buckets.min() < 0 or buckets.max() >= model.args.bucket):
        return "it keeps n-grams of buckets that it does not have"
    if len(rows) and (rows.min() < 0 or rows.max() >= model.inputs.height - model.words):
        return "it keeps n-grams in rows that it does not have"
    if model.pruned and not model.inputs.quantised:
        return "it is pruned but not quantised, which only early versions of fastText wrote"
    return ""


def _height_fault(model: FastTextFile) -> str:
    needed = model.words
    if uses_ngrams(model.args) and not model.pruned:
        needed += model.args.bucket
    if model.inputs.height < max(needed, 1):
        return f"its input has {model.inputs.height} rows where it needs {max(needed, 1)}"
    if model.outputs.height != len(model.labels):
        return f"its output has {model.outputs.height} rows for {len(model.labels)} labels"
    return ""


def _rows_fault(name: str, rows: Rows, dim: int) -> str:
    if not rows.quantised:
        if rows.dense.shape[1] != dim:
            return f"its {name} has {rows.dense.shape[1]} columns where it needs {dim}"
        return ""
    if not 1 <= rows.dsub <= dim:
        return f"the codes of its {name} stand for {rows.dsub} numbers each, not for 1 to {dim}"
    if rows.codes.shape[1] != codes_in_row(dim, rows.dsub) or len(rows.centroids) != CENTROIDS * dim:
        return f"the codes of its {name} do not fit {dim} columns"
    if len(rows.norms) not in (0, CENTROIDS) or len(rows.norm_codes) != len(rows.norms[:1]) * rows.height:
        return f"the norms of its {name} are not whole"
    return ""


def _weights_fault(outputs: Rows) -> str:
    most = max(largest(values.reshape(-1)) for values in (outputs.dense, outputs.centroids, outputs.norms))
    if most > LARGEST_WEIGHT:
        return "its output has weights that are not numbers, or far too large"
    return ""
