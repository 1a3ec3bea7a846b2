"""Word vectors of imported models beside those that fastText itself gives."""

import random
from pathlib import Path

import numpy as np
import pytest

from manyhands.bundle.bundle import open_bundle
from manyhands.bundle.importing import import_fasttext
from manyhands.bundle.word_vectors import embedding_of
from manyhands.errors import InputError, ManyhandsError
from manyhands.estimator.word_vectors import WordVectors
from manyhands.formats.fasttext import read_fasttext_vectors
from manyhands.formats.fasttext_vectors import ImportedWordVectors
from tests.formats.fasttext_zoo import RECIPES, fasttext_module, train, words, write_training

# Never seen, of other scripts, of one letter, long, and with the signs that mark a word's ends.
UNSEEN = [*words(2, 60), "Grüße", "日本語学", "x", "é", "</s>", "<", "a" * 3000, "__label__0", "ünseen-Word!"]


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = write_training(tmp_path_factory.mktemp("text") / "text.txt", 5, prefix="word")
    with path.open("a", encoding="utf-8") as file:
        file.write("Paris paris Paris\n" * 20)
    return path


def untaught(text: Path, out: Path, **settings) -> Path:
    known = {"dim": 12, "bucket": 3000, "epoch": 1, "thread": 12, "verbose": 0, "minCount": 2}
    fasttext_module().train_unsupervised(str(text), **{**known, **settings}).save_model(str(out))
    return out


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "skipgram"},
        {"model": "cbow", "minn": 2, "maxn": 4},
        {"model": "skipgram", "minn": 1, "maxn": 1, "loss": "hs"},
        {"model": "cbow", "maxn": 0},
    ],
    ids=str,
)
def test_vectors_are_those_of_fasttext(settings, text: Path, tmp_path: Path) -> None:
    theirs = fasttext_module().load_model(str(untaught(text, tmp_path / "model.bin", **settings)))
    import_fasttext(tmp_path / "model.bin", tmp_path / "run")
    bundle = open_bundle(tmp_path / "run")
    bundle.verify()
    ours = embedding_of(bundle)
    seen = theirs.get_words()
    assert ours.vocabulary.words.to_pylist() == seen and "Paris" in seen and len(seen) > 100
    found, known = ours.vectors_of([*seen, *UNSEEN, "pariS"])
    expected = np.array([theirs.get_word_vector(word) for word in [*seen, *UNSEEN, "pariS"]])
    assert np.abs(expected).max() > 0.01, "vectors of nothing would prove nothing"
    if settings.get("maxn") == 0:  # small letters may then help: there is nothing else
        found, expected = found[:-1], expected[:-1]
    assert np.abs(found - expected).max() < 1e-5
    assert known[: len(seen)].all()
    new = [word not in seen for word in UNSEEN]
    assert known[len(seen) : -1][new].any() == (settings.get("maxn") != 0)


@pytest.mark.parametrize(
    "recipe", [r for r in RECIPES if r.labels == 5 and r.prefix != "#"], ids=lambda r: r.name
)
def test_classifiers_have_word_vectors_too(recipe, tmp_path: Path) -> None:
    path = train(recipe, tmp_path)
    theirs = fasttext_module().load_model(str(path))
    ours = embedding_of(import_fasttext(path, tmp_path / "run"))
    asked = [*theirs.get_words(), *words(2, 40)]
    found, _ = ours.vectors_of(asked)
    expected = np.array([theirs.get_word_vector(word) for word in asked])
    assert np.abs(expected).max() > 0.01
    assert np.abs(found - expected).max() < 1e-5


def test_nearest_words_are_those_of_fasttext(text: Path, tmp_path: Path) -> None:
    theirs = fasttext_module().load_model(
        str(untaught(text, tmp_path / "model.bin", model="skipgram", epoch=5))
    )
    import_fasttext(tmp_path / "model.bin", tmp_path / "run")
    ours = WordVectors.load(tmp_path / "run")
    for word in [*theirs.get_words()[5:15], "unseenword"]:
        near = [(name, score) for score, name in theirs.get_nearest_neighbors(word, k=5)]
        found = ours.most_similar(word, topn=5)
        assert [score for _, score in found] == pytest.approx([score for _, score in near], abs=1e-4)
        assert found[0][0] == near[0][0]


def test_the_verbs(text: Path, tmp_path: Path, manyhands) -> None:
    untaught(text, tmp_path / "model.bin", model="cbow")
    said = manyhands("import", "model.bin", "--out", "run")
    assert said.code == 0 and "words, 12 numbers each" in said.out
    assert manyhands("nearest", "run", "Paris", "--top", "2").code == 0
    assert manyhands("analogy", "run", "Paris", "paris", "neverseen").code == 0
    refused = manyhands("predict", "run", "--top", "1", stdin=b"a text")
    assert refused.code == 2 and "holds word vectors (imported-vectors)" in refused.err


def test_files_made_to_do_harm(text: Path, tmp_path: Path) -> None:
    """Whatever stands in a file: an error of one line, or vectors for all words."""
    tiny = untaught(text, tmp_path / "tiny.bin", dim=3, bucket=20, minn=2, maxn=3, minCount=30)
    original, draw, refused = tiny.read_bytes(), random.Random(3), 0
    for _ in range(300):
        data = bytearray(original)
        at = draw.randrange(min(len(data), 200) if draw.random() < 0.7 else len(data))
        data[at : at + 4] = draw.choice([b"\xff" * 4, b"\0" * 4, b"\0\0\0\x7f", draw.randbytes(4)])
        if draw.random() < 0.2:
            del data[draw.randrange(len(data)) :]
        tiny.write_bytes(data)
        try:
            found = ImportedWordVectors.of(read_fasttext_vectors(tiny)).embedding(None)
            assert len(found.vectors_of(["abc", "é"])[0]) == 2
        except ManyhandsError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 60


def test_stored_parts_made_to_do_harm(text: Path, tmp_path: Path) -> None:
    model = ImportedWordVectors.of(read_fasttext_vectors(untaught(text, tmp_path / "model.bin")))
    facts, arrays = model.facts(), model.arrays()
    for wrong in (
        {"vectors": arrays["vectors"][1:]},
        {"vectors": arrays["vectors"][:, 1:]},
        {"ngrams": arrays["ngrams"][:0]},
        {"word_offsets": arrays["word_offsets"][::-1].copy()},
        {"counts": arrays["counts"].astype(np.int32)},
    ):
        with pytest.raises(InputError):
            ImportedWordVectors.from_parts(facts, {**arrays, **wrong})
    with pytest.raises(InputError):
        ImportedWordVectors.from_parts({"minn": 3, "maxn": 1000}, arrays)
