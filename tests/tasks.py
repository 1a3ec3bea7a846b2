"""Small made-up reviews that a model can learn."""

import random

import numpy as np

from manyhands.records import Resources
from manyhands.text.corpus import corpus_of
from manyhands.text.lesson import Labels, Lesson
from manyhands.text.ragged import from_strings

RESOURCES = Resources(threads=2, memory_bytes=1 << 30)
TELLING = ["awful cold broken", "fine decent okay", "great lovely superb", "odd strange weird"]
PLAIN = "the a of it was and to with room food staff place day very"


def texts(count: int, labels: int = 2, seed: int = 0) -> tuple[list[str], list[int]]:
    """Reviews whose label shows in one or two of their words."""
    draw = random.Random(seed)
    rows, truth = [], []
    for _ in range(count):
        label = draw.randrange(labels)
        words = draw.choices(PLAIN.split(), k=draw.randint(3, 20))
        words.insert(draw.randrange(len(words)), draw.choice(TELLING[label].split()))
        rows.append(" ".join(words))
        truth.append(label)
    return rows, truth


def lesson(count: int, labels: int = 2, seed: int = 0) -> Lesson:
    rows, truth = texts(count, labels, seed)
    names = [f"label {number}" for number in range(labels)]
    return Lesson(
        corpus_of(from_strings(rows)),
        Labels.single(np.array(truth, np.int32), names),
        np.ones(count, np.float32),
    )


def several(count: int, seed: int = 0) -> Lesson:
    """Reviews with one or two labels of three."""
    draw = random.Random(seed)
    rows, ids, offsets = [], [], [0]
    for _ in range(count):
        mine = sorted(draw.sample(range(3), draw.randint(1, 2)))
        words = draw.choices(PLAIN.split(), k=8) + [draw.choice(TELLING[label].split()) for label in mine]
        draw.shuffle(words)
        rows.append(" ".join(words))
        ids += mine
        offsets.append(len(ids))
    labels = Labels(np.array(ids, np.int32), np.array(offsets), ["one", "two", "three"], several=True)
    return Lesson(corpus_of(from_strings(rows)), labels, np.ones(count, np.float32))


def write_labelled(path, count: int, labels: int = 2, seed: int = 0):
    """The same reviews as a file of fastText's."""
    rows, truth = texts(count, labels, seed)
    lines = (f"__label__{label} {row}\n" for row, label in zip(rows, truth, strict=True))
    path.write_text("".join(lines))
    return path
