"""The words of a dataset and their ids: 0 is reserved, 1 pads, 2 is unknown, words begin at 3."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from manyhands.errors import InputError
from manyhands.kernel import Ints
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


def counted(words: Ragged, counts: Ints) -> Vocabulary:
    """A vocabulary of all words that occur; one may stand several times among ``words``.

    >>> from manyhands.text.ragged import from_strings
    >>> vocabulary = counted(from_strings(["b", "a", "b", "never"]), np.array([2, 5, 4, 0]))
    >>> vocabulary.words.to_pylist(), vocabulary.counts.tolist()
    (['b', 'a'], [6, 5])
    """
    occur = np.flatnonzero(counts)
    encoded = words.arrow().cast(pa.large_string()).take(pa.array(occur)).dictionary_encode()
    distinct = encoded.dictionary
    totals = np.bincount(np.asarray(encoded.indices), counts[occur], minlength=len(distinct)).astype(np.int64)
    order = np.asarray(pc.sort_indices(distinct))  # then by count, stably
    order = order[np.argsort(-totals[order], kind="stable")]
    return Vocabulary(distinct.take(pa.array(order)), totals[order])


def together(old: Vocabulary, new: Vocabulary) -> Vocabulary:
    """The words of both, with the sums of their counts."""
    words = from_arrow(pa.concat_arrays([old.words, new.words]))
    return counted(words, np.concatenate([old.counts, new.counts]))


def most_frequent(
    tables: Iterable[tuple[Ragged, Ints]], limit: int, min_count: int, memory_bytes: int, scratch: Path
) -> Vocabulary:
    """Merge word counts into a vocabulary, on disk where they do not fit in memory.

    >>> from manyhands.text.ragged import from_strings
    >>> one = (from_strings(["b", "a", "rare"]), np.array([2, 5, 1]))
    >>> two = (from_strings(["c", "b"]), np.array([5, 1]))
    >>> vocabulary = most_frequent([one, two], 3, 2, 1 << 30, Path("/tmp"))
    >>> vocabulary.words.to_pylist(), vocabulary.counts.tolist()
    (['a', 'c', 'b'], [5, 5, 3])
    """
    counted = [
        pa.table({"word": words.arrow().cast(pa.large_string()), "count": pa.array(counts)})
        for words, counts in tables
    ]
    config = {"memory_limit": f"{max(memory_bytes >> 20, 128)}MiB", "temp_directory": str(scratch)}
    with duckdb.connect(config={**config}) as engine:
        engine.register("counted", pa.concat_tables(counted))
        table = engine.sql(
            f"""
            SELECT word, sum("count")::BIGINT AS total FROM counted GROUP BY word
            HAVING total >= {int(min_count)} ORDER BY total DESC, word LIMIT {int(limit)}
            """
        ).to_arrow_table()
    return Vocabulary(table["word"].combine_chunks().cast(pa.large_string()), table["total"].to_numpy())
