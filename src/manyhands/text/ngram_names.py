"""Names for hashed n-grams. A hash cannot be read backwards: names are n-grams of texts at hand."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Ints
from manyhands.text.ragged import Ragged

Runs = npt.NDArray[np.uint32]
Lengths = npt.NDArray[np.uint8]

LETTERS = np.uint8(255)  # in the place of a length: not a run of words


@dataclass(frozen=True)
class NgramNames:
    """The n-gram of feature ``f`` is that of the first ``lengths[f]`` words of ``runs[f]``.

    A length of 0 means that no text had an n-gram for it. Where it is ``LETTERS``, the feature is a run of
    letters: ``runs[f]`` holds a word, and which of its runs it is.

    >>> from manyhands.text.ragged import from_strings
    >>> runs = np.array([[1, 0], [0, 0], [0, 3]], np.uint32)
    >>> names = NgramNames(from_strings(["good", "so"]), runs, np.array([2, 0, 255], np.uint8), (2, 3))
    >>> names.of(np.arange(3))
    ['so good', '', 'letters goo']
    """

    words: Ragged
    runs: Runs
    lengths: Lengths
    chars: tuple[int, int]  # runs of so many letters, from and to

    def __len__(self) -> int:
        return len(self.lengths)

    def known(self) -> Ints:
        """The features that have a name."""
        return np.flatnonzero(self.lengths)

    def of(self, features: Ints) -> list[str]:
        """The name of each of these features, empty where none is known."""
        lengths = self.lengths[features]
        counts = np.where(lengths == LETTERS, 1, lengths).astype(np.int64)
        runs, width = self.runs[features], self.runs.shape[1]
        words = self.words.take(runs[np.arange(width) < counts[:, None]].astype(np.int64)).strings()
        ends = np.cumsum(counts)
        found = [" ".join(words[end - count : end]) for end, count in zip(ends, counts, strict=True)]
        for place in np.flatnonzero(lengths == LETTERS).tolist():
            found[place] = f"letters {letters_of(found[place], self.chars)[int(runs[place, 1])]}"
        return found


def letters_of(word: str, chars: tuple[int, int]) -> list[str]:
    """The runs of letters of a word in the order in which ``letter_runs`` hashes them.

    >>> letters_of("so", (2, 3))
    ['<s', '<so', 'so', 'so>', 'o>']
    """
    whole, (least, most) = f"<{word}>", chars
    return [
        whole[start:end]
        for start in range(len(whole))
        for end in range(start + least, min(start + most, len(whole)) + 1)
        if end - start > 1 or 0 < start < len(whole) - 1
    ]
