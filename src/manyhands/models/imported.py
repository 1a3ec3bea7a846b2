"""A classifier that fastText trained, computed here: the same probabilities for the same bytes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.kernel import Item, frozen
from manyhands.models.fasttext_features import Features, scratch
from manyhands.models.fasttext_parts import FastTextArgs, FastTextFile, broken, checked
from manyhands.models.fasttext_rows import Floats, Rows, dense_rows, quantised_rows
from manyhands.models.fasttext_scores import HS, LOSSES, Classifier, huffman, score_rows
from manyhands.models.fasttext_tables import kept_table, word_table
from manyhands.parallel import side_by_side
from manyhands.text.corpus import Corpus, corpus_once
from manyhands.text.ragged import Ragged

SIDES = ("input", "output")
ROWS_AT_ONCE = 2048
Arrays = dict[str, npt.NDArray[Any]]


class ImportedFastText:
    """Scores raw texts as fastText's ``predict`` does; ``arrays`` and ``facts`` are all of its state."""

    def __init__(self, model: FastTextFile) -> None:
        self._model = checked(model)
        args = model.args
        words = word_table(model.letters, model.starts, model.words)
        kept = kept_table(model.kept_buckets, model.kept_rows)
        if words is None or kept is None:
            raise broken(model.where, "more of its words or n-grams collide than by chance")
        ngrams = not model.pruned or len(model.kept_rows) > 0
        self._features = Features(
            words,
            kept,
            args.word_ngrams if ngrams else 1,
            max(args.bucket, 1),
            args.minn,
            args.maxn if ngrams else 0,
        )
        counts = model.label_counts if args.loss == LOSSES[HS] else model.label_counts[:1]
        columns = frozen(np.ascontiguousarray(model.outputs.dense.T))
        self._classifier = Classifier(
            model.outputs, columns, LOSSES.index(args.loss), frozen(huffman(frozen(counts)))
        )

    @property
    def labels(self) -> list[str]:
        """The names of the labels, without fastText's prefix."""
        return list(self._model.labels)

    several = False
    reads_numbers = False

    def read(self, normal: Ragged) -> Corpus:
        return corpus_once(normal)

    def scores(self, corpus: Corpus, threads: int = 1) -> Floats:
        """The probability of each label for each row, its words joined by blanks."""
        out = np.empty((len(corpus), len(self._model.labels)), np.float32)

        def fill(start: int) -> None:
            rows = np.arange(start, min(start + ROWS_AT_ONCE, len(corpus)))
            out[start : start + ROWS_AT_ONCE] = self.scores_of(corpus.texts(rows))

        for _ in side_by_side(fill, range(0, len(corpus), ROWS_AT_ONCE), threads):
            pass
        return out

    def scores_of(self, texts: Ragged) -> Floats:
        """The probability of each label for each text; a text in which nothing is known has zeros.

        Texts are taken as they are, but for line ends, which count as blanks.
        """
        out = np.empty((len(texts), len(self._model.labels)), np.float32)
        longest = int(texts.lengths().max(initial=0))
        room = scratch(longest, self._model.args.dim)
        score_rows(self._features, self._model.inputs, self._classifier, texts.data, texts.offsets, room, out)
        return out

    def facts(self) -> dict[str, Any]:
        """What is not an array, fit for JSON."""
        model = self._model
        return {
            "args": model.args._asdict(),
            "labels": list(model.labels),
            "pruned": model.pruned,
            "dsub": [model.inputs.dsub, model.outputs.dsub],
        }

    def arrays(self) -> Arrays:
        """The arrays by name; the empty ones are left out."""
        model = self._model
        arrays: Arrays = {
            "letters": model.letters,
            "starts": model.starts,
            "label_counts": model.label_counts,
            "kept_buckets": model.kept_buckets,
            "kept_rows": model.kept_rows,
        }
        for side, rows in zip(SIDES, (model.inputs, model.outputs), strict=True):
            for field in Rows._fields[:-1]:
                arrays[f"{side}_{field}"] = getattr(rows, field)
        return {name: array for name, array in arrays.items() if array.size}

    @classmethod
    def from_parts(
        cls,
        facts: Mapping[str, Any],
        arrays: Mapping[str, npt.NDArray[Any]],
        where: str = "the stored model",
    ) -> "ImportedFastText":
        """The model that gave these ``facts`` and ``arrays``; both may come from anywhere."""
        parts = _Parts(where, arrays)
        args, labels, pruned, dsub = _checked_facts(where, facts)
        return cls(
            FastTextFile(
                where=where,
                args=args,
                labels=labels,
                label_counts=parts.get("label_counts", np.int64),
                letters=parts.get("letters", np.uint8),
                starts=parts.get("starts", np.int64, least=2),
                pruned=pruned,
                kept_buckets=parts.get("kept_buckets", np.int32),
                kept_rows=parts.get("kept_rows", np.int32),
                inputs=parts.rows(SIDES[0], dsub[0]),
                outputs=parts.rows(SIDES[1], dsub[1]),
            )
        )


class _Parts:
    """Takes arrays out of a mapping that may hold anything."""

    def __init__(self, where: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self._where = where
        self._arrays = arrays

    def get(self, name: str, kind: type[Item], dimensions: int = 1, least: int = 0) -> npt.NDArray[Item]:
        empty = np.empty((0,) * dimensions, kind)
        array = self._arrays.get(name, empty)
        if not isinstance(array, np.ndarray) or array.dtype != kind or array.ndim != dimensions:
            raise broken(self._where, f"{name} should be {kind.__name__} numbers in {dimensions} dimensions")
        if len(array) < least:
            raise broken(self._where, f"{name} is missing or too short")
        # Kernels are compiled for one kind of array: in order, in place, read only.
        return frozen(np.require(np.asarray(array), kind, ["C", "A"]))

    def rows(self, side: str, dsub: int) -> Rows:
        dense = self.get(f"{side}_dense", np.float32, 2)
        codes = self.get(f"{side}_codes", np.uint8, 2)
        if bool(len(dense)) == bool(len(codes)):
            raise broken(self._where, f"its {side} should be either dense or quantised")
        if len(dense):
            return dense_rows(dense)
        centroids = self.get(f"{side}_centroids", np.float32)
        norm_codes, norms = (
            self.get(f"{side}_norm_codes", np.uint8),
            self.get(f"{side}_norms", np.float32),
        )
        return quantised_rows(codes, centroids, norm_codes, norms, dsub)


def _checked_facts(where: str, facts: Mapping[str, Any]) -> tuple[FastTextArgs, list[str], bool, list[int]]:
    args, labels = facts.get("args"), facts.get("labels")
    pruned, dsub = facts.get("pruned"), facts.get("dsub")
    if not isinstance(args, dict) or set(args) != set(FastTextArgs._fields):
        raise broken(where, f"its args should be {', '.join(FastTextArgs._fields)}")
    for name, kind in FastTextArgs.__annotations__.items():
        if type(args[name]) is not kind:
            raise broken(where, f"its {name} should be of the kind {kind.__name__}")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise broken(where, "its labels should be a list of names")
    if not isinstance(pruned, bool):
        raise broken(where, "pruned should be true or false")
    if not isinstance(dsub, list) or len(dsub) != len(SIDES) or any(type(part) is not int for part in dsub):
        raise broken(where, "dsub should be two numbers")
    return FastTextArgs(**args), list(labels), pruned, dsub
