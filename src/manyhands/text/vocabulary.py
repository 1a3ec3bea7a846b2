"""The words of a dataset and their ids: 0 is reserved, 1 pads, 2 is unknown, words begin at 3."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from manyhands.errors import InputError
from manyhands.kernels.compile import Ints
from manyhands.text.ragged import Ragged, from_arrow

RESERVED, PAD, UNKNOWN, FIRST_WORD = 0, 1, 2, 3
FILE = "vocabulary.tsv"


@dataclass(frozen=True)
class Vocabulary:
    """Words from the most frequent on; equally frequent ones in the order of their bytes."""

    words: pa.Array
    counts: Ints

    def __len__(self) -> int:
        return len(self.words)

    @property
    def ids(self) -> int:
        """How many ids there are, the three special ones included."""
        return len(self.words) + FIRST_WORD

    def word(self, id_: int) -> str:
        """The word of an id; the special ids have names that no text holds."""
        return str(self.words[id_ - FIRST_WORD]) if id_ >= FIRST_WORD else ("<0>", "<pad>", "<unknown>")[id_]

    def ids_of(self, words: Ragged) -> npt.NDArray[np.uint32]:
        """The id of each word, UNKNOWN for those that are not here."""
        found = pc.index_in(words.arrow().cast(pa.large_string()), value_set=self.words)
        return np.asarray(pc.fill_null(pc.add(found, FIRST_WORD), UNKNOWN), np.uint32)

    def save(self, folder: Path) -> None:
        """Write a word and its count a line, in the order of the ids."""
        counts = pa.array(self.counts).cast(pa.large_string())
        tab, end, nothing = (pa.scalar(text, pa.large_string()) for text in ("\t", "\n", ""))
        lines = pc.binary_join_element_wise(self.words, counts, tab)
        lines = from_arrow(pc.binary_join_element_wise(lines, nothing, end))
        (folder / FILE).write_bytes(lines.data[: lines.size].data)

    @classmethod
    def load(cls, folder: Path) -> "Vocabulary":
        path = folder / FILE
        try:
            if not path.stat().st_size:
                return cls(pa.array([], pa.large_string()), np.zeros(0, np.int64))
            table = pyarrow.csv.read_csv(
                path,
                pyarrow.csv.ReadOptions(column_names=["word", "count"]),
                pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False),
                pyarrow.csv.ConvertOptions(
                    column_types={"word": pa.large_string(), "count": pa.int64()}, strings_can_be_null=False
                ),
            )
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
        return cls(table["word"].combine_chunks(), table["count"].to_numpy())


def vocabulary_from_counts(
    words: Ragged, counts: Ints, limit: int | None = None, min_count: int = 1
) -> Vocabulary:
    """A vocabulary of the words that occur so often; one may stand several times among ``words``.

    >>> from manyhands.text.ragged import from_strings
    >>> words, counts = from_strings(["b", "a", "b", "never", "c"]), np.array([2, 5, 4, 0, 5])
    >>> vocabulary = vocabulary_from_counts(words, counts, limit=2)
    >>> vocabulary.words.to_pylist(), vocabulary.counts.tolist()
    (['b', 'a'], [6, 5])
    """
    encoded = words.arrow().cast(pa.large_string()).dictionary_encode()
    distinct = encoded.dictionary
    totals = np.bincount(np.asarray(encoded.indices), counts, minlength=len(distinct)).astype(np.int64)
    if limit is not None and limit < len(totals):  # to sort all words by their letters is slow
        min_count = max(min_count, int(np.partition(totals, -limit)[-limit]))
    kept = np.flatnonzero(totals >= min_count)
    distinct, totals = distinct.take(pa.array(kept)), totals[kept]
    order = np.asarray(pc.sort_indices(distinct))  # then by count, stably
    order = order[np.argsort(-totals[order], kind="stable")][:limit]
    return Vocabulary(distinct.take(pa.array(order)), totals[order])


def merge_vocabularies(old: Vocabulary, new: Vocabulary) -> Vocabulary:
    """The words of both, with the sums of their counts."""
    words = from_arrow(pa.concat_arrays([old.words, new.words]))
    return vocabulary_from_counts(words, np.concatenate([old.counts, new.counts]))
