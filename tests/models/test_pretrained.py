"""Classifiers that begin from word vectors: where they are put, and that they help."""

import numpy as np
import pytest

from manyhands.errors import InputError, UsageError
from manyhands.models.learner import arrays_of
from manyhands.models.ngram.fasttext import FastText, FastTextSettings
from manyhands.run.train import train
from manyhands.text.ngrams import word_slots
from manyhands.text.ragged import from_strings
from tests.tasks import begin, examples


def row_of(learner, word: str) -> np.ndarray:
    space = learner.model().space
    corpus = space.read(from_strings([word]))
    (number,) = space.numbers_of(word_slots(corpus.hashes, space.hashing))
    return arrays_of(learner)["vectors"][number]


def test_words_of_the_file_begin_there_and_ngrams_stay_small(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("3 4\nawful 1 2 3 4\nunheardof 9 8 7 6\nfood 5 6 7 8\n")
    rows, settings = examples(300), FastTextSettings(dim=4, pretrained_vectors=str(path))
    learner, _ = begin(FastText, settings, rows)
    plain, _ = begin(FastText, FastTextSettings(dim=4), rows)
    for word, vector in {"awful": [1, 2, 3, 4], "unheardof": [9, 8, 7, 6], "food": [5, 6, 7, 8]}.items():
        assert row_of(learner, word)[:4].tolist() == vector and not row_of(learner, word)[4:].any()
    table = arrays_of(learner)["vectors"]
    assert np.count_nonzero(np.abs(table).max(axis=1) > 0.25) == 3
    assert len(table) == len(arrays_of(plain)["vectors"]) + 1, "the word that no row has"


def test_letters_do_not_hide_the_word(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("awful 1 2 3 4\n")
    learner, _ = begin(
        FastText, FastTextSettings(dim=4, char_ngrams="3-4", pretrained_vectors=str(path)), examples(300)
    )
    assert row_of(learner, "awful")[:4].tolist() == [1, 2, 3, 4]


def test_vectors_that_do_not_fit(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("3 4\nawful 1 2 3 4\nfood 5 6 7 8\nstaff 1 1 1 1\n")
    with pytest.raises(UsageError, match="line 2 has 4 numbers; --dim is 10: make them equal"):
        begin(FastText, FastTextSettings(pretrained_vectors=str(path)), examples(100))
    path.write_text("zzz 1 2 3 4\n")
    with pytest.raises(InputError, match="for none of the words"):
        begin(FastText, FastTextSettings(dim=4, pretrained_vectors=str(path)), examples(100))


def test_a_few_rows_are_told_apart_by_words_they_never_had(tmp_path):
    """Forty words of either class lie together; the rows show five of each, the texts to tell the others."""
    draw = np.random.default_rng(4)
    names = {label: [f"{label}{n}" for n in range(40)] for label in ("up", "down")}
    with (tmp_path / "vectors.txt").open("w") as file:
        for sign, words in zip((1, -1), names.values(), strict=True):
            for word in words:
                vector = draw.normal(0, 0.3, 8) + sign * np.eye(8)[0]
                file.write(f"{word} {' '.join(f'{number:.4f}' for number in vector)}\n")
    with (tmp_path / "rows.txt").open("w") as file:
        for n in range(200):
            label = ("up", "down")[n % 2]
            file.write(f"__label__{label} {' '.join(draw.choice(names[label][:5], 6))}\n")
    unseen = [" ".join(draw.choice(names[label][5:], 6)) for label in ("up", "down") * 50]
    rights = {}
    for name, vectors in {
        "plain": {},
        "given": {"pretrained_vectors": str(tmp_path / "vectors.txt")},
    }.items():
        bundle = train(tmp_path / "rows.txt", tmp_path / name, model="fasttext", dim=8, **vectors).bundle
        found = [best[0][0] for best in bundle.predict(unseen)]
        rights[name] = sum(a == b for a, b in zip(found, ("up", "down") * 50, strict=True))
    assert rights["plain"] <= 60 and rights["given"] >= 95
