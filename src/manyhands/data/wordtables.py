"""The word tables of all threads: each numbers for itself, and one vocabulary is made of all."""

import threading

import numpy as np
import numpy.typing as npt

from manyhands.errors import UsageError
from manyhands.kernels.compile import Ints
from manyhands.text.ragged import Ragged, concatenate
from manyhands.text.vocabulary import Vocabulary, vocabulary_from_counts
from manyhands.text.words import WordTable

MOST_TABLES = 1 << 16


class WordTables:
    """Every word of table ``t`` has the number ``bases[t]`` + its own, once reading is over."""

    def __init__(self, table_bytes: int) -> None:
        self._table_bytes = table_bytes
        self._tables: list[WordTable] = []
        self._lock = threading.Lock()
        self._local = threading.local()

    def for_this_thread(self) -> tuple[int, WordTable]:
        """This thread's table; a new one when it has grown past its share of the memory."""
        table: WordTable | None = getattr(self._local, "table", None)
        if table is None or table.full or table.nbytes > self._table_bytes:
            if table is not None:
                table.seal()
            table = self._local.table = WordTable()
            with self._lock:
                self._tables.append(table)
                self._local.number = len(self._tables) - 1
                if len(self._tables) > MOST_TABLES:
                    raise UsageError("the input has too many different words; give it more --memory")
        return self._local.number, table

    def bases(self) -> Ints:
        """Where the numbers of each table begin among those of all, and how many there are."""
        return np.cumsum([0] + [len(table) for table in self._tables])

    def words(self) -> list[Ragged]:
        """The words of every table, by number."""
        return [table.words() for table in self._tables]

    def vocabulary(
        self, counts: Ints, limit: int, min_count: int
    ) -> tuple[Vocabulary, npt.NDArray[np.uint32]]:
        """The vocabulary by ``counts`` (one for each number), and the final id of each number."""
        words = concatenate(self.words())
        vocabulary = vocabulary_from_counts(words, counts, limit, min_count)
        return vocabulary, vocabulary.ids_of(words)
