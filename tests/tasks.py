"""Small made-up reviews that a model can learn."""

import random

import numpy as np

from manyhands.records import Resources, Silent
from manyhands.text.corpus import corpus_of
from manyhands.text.labelled_rows import LabelledRows, Labels
from manyhands.text.ragged import from_strings
from manyhands.training.exchange import Alone

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


def examples(count: int, labels: int = 2, seed: int = 0) -> LabelledRows:
    rows, truth = texts(count, labels, seed)
    names = [f"label {number}" for number in range(labels)]
    return LabelledRows(
        corpus_of(from_strings(rows)),
        Labels.single(np.array(truth, np.int32), names),
        np.ones(count, np.float32),
    )


def begin(kind, settings, rows):
    """A learner of these rows, and all of them in its blocks."""
    learner = kind.begin(settings, rows, None, RESOURCES, Silent(), Alone())
    return learner, learner.feed(rows, settings.seed, RESOURCES, Silent(), Alone())


def multi_label(count: int, seed: int = 0) -> LabelledRows:
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
    labels = Labels(np.array(ids, np.int32), np.array(offsets), ["one", "two", "three"], multi_label=True)
    return LabelledRows(corpus_of(from_strings(rows)), labels, np.ones(count, np.float32))


def write_labelled(path, count: int, labels: int = 2, seed: int = 0):
    """The same reviews as a file of fastText's."""
    rows, truth = texts(count, labels, seed)
    lines = (f"__label__{label} {row}\n" for row, label in zip(rows, truth, strict=True))
    path.write_text("".join(lines))
    return path


TOPICS = [
    "whale ocean sailor harbour anchor sails captain deck",
    "wheat barley tractor harvest farmer plough meadow cattle",
    "planet comet orbit telescope galaxy asteroid eclipse lunar",
    "violin sonata orchestra cello melody conductor rhythm chorus",
]


def running_text(count: int, seed: int = 0) -> list[str]:
    """Rows about one topic each: its words are each other's neighbours, plain words are everyone's."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        words = draw.choices(draw.choice(TOPICS).split(), k=draw.randint(6, 14))
        words += draw.choices(PLAIN.split(), k=len(words) // 2)
        draw.shuffle(words)
        rows.append(" ".join(words))
    return rows


def unlabelled(rows: list[str]) -> LabelledRows:
    return LabelledRows(corpus_of(from_strings(rows)), Labels.none(len(rows)), np.ones(len(rows), np.float32))


def told_apart(embedding) -> float:
    """The mean cosine of two words of one topic, less that of words of different topics."""
    words = [word for topic in TOPICS for word in topic.split()]
    vectors, known = embedding.vectors_of(words)
    assert known.all()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit.T
    size = len(TOPICS[0].split())
    topic = np.arange(len(words)) // size
    same = (topic[:, None] == topic) & ~np.eye(len(words), dtype=bool)
    other = topic[:, None] != topic
    return float(cosines[same].mean() - cosines[other].mean())
