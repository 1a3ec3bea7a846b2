"""Files of fastText beside what fastText reads in them, and files made to do harm."""

import os
import random
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from manyhands.errors import InputError
from manyhands.formats.fasttext import read_fasttext
from manyhands.text.ragged import from_strings
from tests.formats.fasttext_zoo import (
    HARMED,
    RECIPES,
    Recipe,
    fasttext_module,
    load_model,
    scores_by_fasttext,
    store_and_load,
    texts,
    train,
)

MUTATIONS = int(os.environ.get("MANYHANDS_FASTTEXT_MUTATIONS", "2000"))
INSIDE_LOG = 1e-5  # what fastText adds to every probability that it gives
FIELDS = [*range(0, 56, 4), 64, 68, 72, 84, 88]  # of the header: the format, the settings, the counts
NUMBERS = [0, 1, -1, 2, 3, 11, 13, 255, 1 << 16, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 30, 100, 101]


def test_version_11_has_no_character_ngrams(tmp_path: Path) -> None:
    path = train(RECIPES[1], tmp_path)
    path.write_bytes(_overwrite(path.read_bytes(), 4, "<i", 11))
    model, rows = load_model(path), texts(200)
    expected = scores_by_fasttext(path, rows, model.labels, "__label__")
    assert np.abs(expected - INSIDE_LOG - model.scores_of(from_strings(rows))).max() < 1e-5


def test_word_vectors_and_other_files_are_refused(tmp_path: Path) -> None:
    data = tmp_path / "text.txt"
    data.write_text("one two three one two three\n" * 30)
    vectors = tmp_path / "vectors.bin"
    trained = fasttext_module().train_unsupervised(str(data), dim=4, bucket=10, thread=12, verbose=0)
    trained.save_model(str(vectors))
    os.mkfifo(tmp_path / "pipe")
    for name, said in {
        "vectors.bin": "holds word vectors",
        "text.txt": "is not a model of fastText",
        "pipe": "is not a file",
        "missing": "is not a file",
        ".": "is not a file",
    }.items():
        with pytest.raises(InputError, match=said):
            read_fasttext(tmp_path / name)


def _overwrite(data: bytes, at: int, layout: str, value: int) -> bytes:
    return data[:at] + struct.pack(layout, value) + data[at + struct.calcsize(layout) :]


def _shapes(data: bytes) -> list[int]:
    """Where the counts stand that come behind the words."""
    size, _, _, _, kept = struct.unpack_from("<3i2q", data, 64)
    at = 92
    for _ in range(size):
        at = data.index(b"\0", at) + 10
    at += 8 * max(kept, 0)
    if not data[at]:
        return [at, at + 1, at + 9]
    codes = struct.unpack_from("<i", data, at + 18)[0]
    centroids = at + 22 + codes
    return [at, at + 1, at + 2, at + 10, at + 18, *range(centroids, centroids + 16, 4)]


def _mutate(data: bytes, shapes: list[int], rng: random.Random) -> bytes:
    at = rng.randrange(min(len(data), rng.choice([100, 2000, len(data)])))
    change = rng.randrange(7)
    if change == 0:
        flipped = bytearray(data)
        for _ in range(rng.choice([1, 1, 4, 30])):
            flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(flipped)
    if change == 1:
        return data[:at]
    if change == 2:
        return data[:at] + rng.randbytes(rng.randint(1, 20)) + data[at:]
    if change == 3:
        size = rng.randint(1, 16)
        return data[:at] + b"\xff" * size + data[at + size :]
    if change == 4:
        return data[:at] + data[at + rng.randint(1, 20) :]
    layout = rng.choice(["<i", "<i", "<q"])
    for _ in range(rng.choice([1, 1, 2])):
        where = rng.choice(FIELDS if change == 5 else shapes)
        value = rng.choice([*NUMBERS, rng.randint(-400, 400)])
        data = _overwrite(data, where, layout, value)
    return data


@pytest.mark.parametrize("recipe", HARMED, ids=lambda recipe: recipe.name)
def test_damaged_files_are_refused_or_work(recipe: Recipe, tmp_path: Path) -> None:
    whole = train(recipe, tmp_path).read_bytes()
    shapes, rng, path = _shapes(whole), random.Random(recipe.name), tmp_path / "damaged"
    rows = from_strings(texts(16)[:6] + texts(16)[7:])
    refused = worked = 0
    for n in range(MUTATIONS // len(HARMED)):
        path.write_bytes(_mutate(whole, shapes, rng))
        try:
            model = load_model(path)
            if n % 8 == 0:
                model = store_and_load(model)
        except InputError as error:
            assert "\n" not in str(error) and ";" in str(error)
            refused += 1
            continue
        scores = model.scores_of(rows)
        assert scores.shape == (len(rows), len(model.labels))
        assert (scores >= 0).all() and (scores <= 1).all()
        worked += 1
    assert refused and worked


def test_huge_counts_make_nothing_huge(tmp_path: Path) -> None:
    path = train(HARMED[2], tmp_path)
    whole = path.read_bytes()
    tracemalloc.start()
    for at in [*FIELDS, *_shapes(whole)]:
        for layout in ("<i", "<q"):
            for value in ((1 << 31) - 1, 1 << 30, (1 << 62) - 1):
                try:
                    path.write_bytes(_overwrite(whole, at, layout, value))
                    load_model(path)
                except struct.error:
                    continue
                except InputError:
                    pass
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


def test_every_cut_is_refused(tmp_path: Path) -> None:
    path = train(HARMED[0], tmp_path)
    whole = path.read_bytes()
    for end in [*range(0, 300), *range(300, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:end])
        with pytest.raises(InputError):
            read_fasttext(path)
