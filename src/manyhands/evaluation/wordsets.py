"""Sets of words that people have judged, and where they are found on this machine.

A similarity set says how alike two words are: ``word word score`` a line. An analogy set asks: a is to b
as c is to what? Four words a line, under lines ``: section`` if it has sections. The sets themselves are
not ours to give; whoever has them puts them into a folder.
"""

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from manyhands.errors import InputError
from manyhands.storage.files import cache_folder, reading

VARIABLE = "MANYHANDS_WORDSETS"
MOST_BYTES = 64 << 20  # the largest real set is under one megabyte
HEAD_BYTES, HEAD_LINES = 1 << 16, 20  # enough to tell what a file is
HALF, NEARLY_ALL = 0.5, 0.9  # shares of lines; a few lines of four words stand in any text
COMMENTS = ("#", "//")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
WORD = re.compile(r"[^\s,;\"]+")
PARTS_OF_SPEECH = frozenset("ANV")  # SimLex-999 as published has one between its words and the score

SIMILARITY, ANALOGY = "similarity", "analogy"

# The sets that everybody reports: what each one is, and the parts of a file's name that tell it.
KNOWN: dict[str, tuple[str, tuple[str, ...]]] = {
    "MEN": (SIMILARITY, ("men",)),
    "MTurk-287": (SIMILARITY, ("mturk 287",)),
    "MTurk-771": (SIMILARITY, ("mturk 771",)),
    "RW": (SIMILARITY, ("rw", "rare words", "rarewords")),
    "SimLex-999": (SIMILARITY, ("simlex",)),
    "WS-353": (SIMILARITY, ("ws 353", "wordsim")),
    "WS-353-SIM": (SIMILARITY, ("ws 353 sim", "wordsim sim", "wordsim similarity")),
    "WS-353-REL": (SIMILARITY, ("ws 353 rel", "wordsim rel", "wordsim relatedness")),
    "RG-65": (SIMILARITY, ("rg 65",)),
    "Google": (ANALOGY, ("questions words", "google")),
    "MSR": (ANALOGY, ("msr",)),
}


@dataclass(frozen=True)
class SimilaritySet:
    """``scores[i]`` is how alike people found ``first[i]`` and ``second[i]``."""

    name: str
    first: list[str]
    second: list[str]
    scores: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.first)


Question = tuple[str, str, str, str]


@dataclass(frozen=True)
class AnalogySet:
    """The questions of each section: a is to b as c is to d."""

    name: str
    sections: dict[str, list[Question]]

    def __len__(self) -> int:
        return sum(map(len, self.sections.values()))


@dataclass(frozen=True)
class WordSets:
    """All sets of a folder, those that everybody reports first, and which of these it lacks."""

    folder: Path
    similarity: list[SimilaritySet]
    analogies: list[AnalogySet]
    missing: list[str]


def default_folder() -> Path:
    """Where sets are looked for if nobody says where."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else cache_folder("wordsets")


def find_sets(folder: str | os.PathLike[str] | None = None) -> WordSets:
    """Read all sets in a folder and the folders in it; what looks like no set is passed over.

    The default folder need not exist. Of two files that would bear one name, the second goes by its own.
    """
    root = default_folder() if folder is None else Path(folder)
    if not root.is_dir() and (folder is not None or os.environ.get(VARIABLE)):
        raise InputError(f"{root} is not a folder; give the folder of similarity and analogy files")
    found: dict[str, SimilaritySet | AnalogySet] = {}
    for path in _files(root):
        kind = _kind(path)
        if kind is not None:
            inside = str(path.relative_to(root))
            names = (name_of(path, kind), path.stem, inside, f"{inside} ({len(found)})")
            name = next(name for name in names if name not in found)
            found[name] = (read_similarity if kind == SIMILARITY else read_analogies)(path, name)
    ordered = [found[name] for name in dict.fromkeys((*KNOWN, *found)) if name in found]
    return WordSets(
        root,
        [some for some in ordered if isinstance(some, SimilaritySet)],
        [some for some in ordered if isinstance(some, AnalogySet)],
        [name for name in KNOWN if name not in found],
    )


def name_of(path: Path, kind: str | None) -> str:
    """The name that a set goes by in papers, or else that of its file.

    >>> name_of(Path("EN-WS-353-SIM.txt"), SIMILARITY), name_of(Path("wordsim353.csv"), SIMILARITY)
    ('WS-353-SIM', 'WS-353')
    >>> name_of(Path("women.txt"), SIMILARITY), name_of(Path("questions-words.txt"), ANALOGY)
    ('women', 'Google')
    """
    parts = set(re.findall(r"[a-z]+|[0-9]+", path.stem.lower()))
    fits = [
        (len(pattern.split()), name)
        for name, (known_kind, patterns) in KNOWN.items()
        for pattern in patterns
        if kind == known_kind and parts.issuperset(pattern.split())
    ]
    return max(fits)[1] if fits else path.stem  # "ws 353 sim" says more than "ws 353"


def read_similarity(path: str | os.PathLike[str], name: str | None = None) -> SimilaritySet:
    """Pairs with their scores; the first line may name the columns."""
    path = Path(path)
    pairs: list[tuple[str, str, float]] = []
    headed = False
    for number, line in _content(_text(path)):
        try:
            pairs.append(_pair(line))
        except InputError as error:
            if pairs or headed or len(_fields(line)) < 3:
                raise InputError(f"{path} line {number}: {error}") from None
            headed = True
    if not pairs:
        raise InputError(f"{path} holds no pairs of words; it should have lines such as: cat dog 7.5")
    first, second, scores = zip(*pairs, strict=True)
    return SimilaritySet(
        name or name_of(path, SIMILARITY), list(first), list(second), np.array(scores, np.float64)
    )


def read_analogies(path: str | os.PathLike[str], name: str | None = None) -> AnalogySet:
    """Questions by section; those before any section are in one that is called as the file is."""
    path = Path(path)
    sections: dict[str, list[Question]] = {}
    section = path.stem
    for number, line in _content(_text(path)):
        if line.startswith(":"):
            section = line[1:].strip() or path.stem
            continue
        try:
            sections.setdefault(section, []).append(_question(line))
        except InputError as error:
            raise InputError(f"{path} line {number}: {error}") from None
    if not sections:
        raise InputError(f"{path} holds no questions; it should have lines such as: man king woman queen")
    return AnalogySet(name or name_of(path, ANALOGY), sections)


def _files(root: Path) -> Iterator[Path]:
    """In the order of their names, so that the same folder always gives the same sets."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths = [Path(folder) / name for name in sorted(names) if not name.startswith(".")]
        yield from (path for path in paths if path.is_file())


def _kind(path: Path) -> str | None:
    """What most of the first lines look like. Not all: one bad line is to be told, and not to hide a set."""
    with reading(str(path)), path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    lines = [line for _, line in _content(head.decode("utf-8-sig", "replace"))][:HEAD_LINES]
    if b"\0" in head or not lines:
        return None
    if 2 * sum(_is_sound(line, _pair) for line in lines) > len(lines):
        return SIMILARITY
    questions = sum(line.startswith(":") or _is_sound(line, _question) for line in lines)
    share = HALF if any(line.startswith(":") for line in lines) else NEARLY_ALL
    return ANALOGY if questions > share * len(lines) else None


def _is_sound(line: str, parse: Callable[[str], Sequence[str | float]]) -> bool:
    """Of single words, as in all known sets; else a table of numbers or of reviews might be taken for one."""
    try:
        words = [part for part in parse(line) if isinstance(part, str)]
    except InputError:
        return False
    return all(WORD.fullmatch(word) and not NUMBER.fullmatch(word) for word in words)


def _text(path: Path) -> str:
    with reading(str(path)):
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path} is larger than {MOST_BYTES >> 20} MB, so it is not a set of words")
        data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path} line {line}: it is not UTF-8; write the file anew in UTF-8") from None


def _content(text: str) -> Iterator[tuple[int, str]]:
    """The lines that say something, with their numbers."""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith(COMMENTS):
            yield number, stripped


def _fields(line: str) -> list[str]:
    """Split at the first of tabs, semicolons, commas and blanks that gives three parts, or else at all."""
    for separator in ("\t", ";", ",", None):
        fields = [field.strip() for field in line.split(separator)]
        if len(fields) >= 3:
            return fields
    return re.split(r"[\s,;]+", line)


def _pair(line: str) -> tuple[str, str, float]:
    """Two words and their score; what each of the judges said may follow it.

    >>> _pair("old; new; 1.58"), _pair("old new A 1.58 0.4")
    (('old', 'new', 1.58), ('old', 'new', 1.58))
    """
    fields = _fields(line)
    if len(fields) > 3 and fields[2] in PARTS_OF_SPEECH:
        del fields[2]
    if len(fields) < 3:
        raise InputError(f"there are {len(fields)} columns; it should read: word word score")
    first, second, *numbers = fields
    if not first or not second:
        raise InputError("a word is missing; it should read: word word score")
    for number in numbers:
        if not NUMBER.fullmatch(number) or not math.isfinite(float(number)):
            raise InputError(f"{number!r} is not a number; a line should read: word word score")
    return first, second, float(numbers[0])


def _question(line: str) -> Question:
    fields = [field.strip() for field in line.split("\t" if "\t" in line else None)]
    if len(fields) != 4 or not all(fields):
        raise InputError(f"there are {sum(map(bool, fields))} words; it should read: a b c d")
    a, b, c, d = fields
    return a, b, c, d
