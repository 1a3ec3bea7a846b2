"""``WordVectors`` beside gensim, and what gensim reads from the files that we write."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import load_file

import manyhands
from manyhands.bundle.bundle import VERSION, Bundle, BundleConfig
from manyhands.bundle.convert import convert
from manyhands.bundle.word_vectors import open_embedding
from manyhands.errors import InputError, UsageError
from manyhands.estimator.word_vectors import WordVectors
from manyhands.models.model import EMBED
from manyhands.settings import TextSettings
from manyhands.text.embedding import Embedding
from manyhands.text.vocabulary import Vocabulary

WORDS, DIM = 3000, 40


class StandIn:
    """A model of word vectors, as little as there can be of one."""

    can = frozenset({EMBED})

    def __init__(self, embedding: Embedding) -> None:
        self._embedding = embedding

    def embedding(self, vocabulary: Vocabulary | None) -> Embedding:
        return self._embedding

    def arrays(self) -> dict[str, np.ndarray]:
        return {"vectors": self._embedding.vectors}


@pytest.fixture(scope="module")
def embedding() -> Embedding:
    draw = np.random.default_rng(11)
    words = ["king", "queen", "zürich", "don't", *(f"word{n}" for n in range(WORDS - 4))]
    vectors = draw.normal(size=(WORDS, DIM)) * draw.uniform(0.2, 9, (WORDS, 1))
    counts = np.arange(WORDS, 0, -1)
    return Embedding(Vocabulary(pa.array(words, pa.large_string()), counts), vectors.astype(np.float32))


@pytest.fixture(scope="module")
def bundle(embedding: Embedding) -> Bundle:
    config = BundleConfig(
        version=VERSION,
        model="skipgram",
        labels=["none"],
        label_scheme="as-is",
        text=TextSettings(),
        facts={},
        settings={},
    )
    return Bundle(config, StandIn(embedding))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def theirs(embedding: Embedding) -> Any:
    gensim = pytest.importorskip("gensim.models", reason="needs gensim")
    keyed = gensim.KeyedVectors(DIM)
    keyed.add_vectors(embedding.vocabulary.words.to_pylist(), embedding.vectors)
    return keyed


def from_arrays(words: list[str], vectors: np.ndarray) -> Any:
    from gensim.models import KeyedVectors

    keyed = KeyedVectors(vectors.shape[1])
    keyed.add_vectors(words, vectors.astype(np.float32))
    return keyed


def read_by_gensim(to: str, out: Path, embedding: Embedding) -> Any:
    from gensim.models import KeyedVectors

    if to == "keyedvectors":
        return KeyedVectors.load(str(out))
    if to == "projector":
        words = (out / "metadata.tsv").read_text("utf-8").splitlines()
        return from_arrays(words, np.loadtxt(out / "vectors.tsv", delimiter="\t"))
    if to == "safetensors":
        return from_arrays(embedding.vocabulary.words.to_pylist(), load_file(out)["vectors"])
    return KeyedVectors.load_word2vec_format(
        str(out), binary=to == "word2vec-binary", no_header=to == "glove"
    )


@pytest.mark.parametrize(
    "to", ["vec", "word2vec", "word2vec-binary", "glove", "keyedvectors", "projector", "safetensors"]
)
def test_gensim_reads_what_is_written(
    to: str, bundle: Bundle, embedding: Embedding, theirs: Any, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    files = convert(bundle, to, str(out))
    assert sorted(str(path) for path in tmp_path.rglob("*") if path.is_file()) == sorted(files)
    found = read_by_gensim(to, out, embedding)
    assert found.index_to_key == embedding.vocabulary.words.to_pylist()
    assert np.array_equal(found.vectors, embedding.vectors), "to the last digit"
    ours = WordVectors(embedding)
    for word in ("king", "zürich", "don't", "word7"):
        expected = theirs.most_similar(word, topn=10)
        for neighbours in (found.most_similar(word, topn=10), ours.most_similar(word)):
            assert [other for other, _ in neighbours] == [other for other, _ in expected]
            assert [c for _, c in neighbours] == pytest.approx([c for _, c in expected], abs=1e-5)


def test_large_arrays_of_gensim_stand_beside(bundle: Bundle, tmp_path: Path) -> None:
    gensim = pytest.importorskip("gensim.models", reason="needs gensim")
    words = Vocabulary(
        pa.array([f"w{n}" for n in range(110_000)], pa.large_string()), np.zeros(110_000, np.int64)
    )
    large = Embedding(words, np.arange(110_000 * 100, dtype=np.float32).reshape(-1, 100))
    out = tmp_path / "deep" / "wiki.kv"
    files = convert(Bundle(bundle.config, StandIn(large)), "keyedvectors", str(out))  # type: ignore[arg-type]
    assert files == [str(out), f"{out}.vectors.npy"]
    assert sorted(path.name for path in out.parent.iterdir()) == ["wiki.kv", "wiki.kv.vectors.npy"]
    found = gensim.KeyedVectors.load(str(out), mmap="r")
    assert np.array_equal(found["w109999"], large.vectors[-1])


def test_the_same_answers_as_gensim(embedding: Embedding, theirs: Any) -> None:
    ours = WordVectors(embedding)
    assert len(ours) == len(theirs) and ours.vector_size == theirs.vector_size
    assert ours.key_to_index == theirs.key_to_index and ours.index_to_key == theirs.index_to_key
    vector = embedding.vectors[9] * 3
    questions: list[Callable[[Any], Any]] = [
        lambda v: v.most_similar("king"),
        lambda v: v.most_similar(positive=["king", "word5"], negative=["queen"], topn=5),
        lambda v: v.most_similar(negative="king"),
        lambda v: v.most_similar(positive=["king", vector], negative=[vector / 50], topn=4),
        lambda v: v.most_similar(vector),
        lambda v: v.similar_by_word("queen", topn=3),
        lambda v: v.similar_by_vector(vector, topn=3),
        lambda v: [("", v.similarity("king", "queen"))],
        lambda v: [("", v.distance("king", "queen"))],
        lambda v: [("", v.n_similarity(["king", "queen"], ["word1", "word2", "word3"]))],
        lambda v: v.most_similar("king", topn=0),
    ]
    for ask in questions:
        answers = [(word, float(score)) for word, score in ask(ours)]
        expected = [(word, float(score)) for word, score in ask(theirs)]
        assert [word for word, _ in answers] == [word for word, _ in expected]
        assert [score for _, score in answers] == pytest.approx([score for _, score in expected], abs=1e-5)
    assert np.array_equal(ours["king"], theirs["king"])
    assert np.array_equal(ours[["king", "word8"]], theirs[["king", "word8"]])
    assert ours.get_vector("king", norm=True) == pytest.approx(theirs.get_vector("king", norm=True), abs=1e-6)


def test_words_that_are_not_there(embedding: Embedding) -> None:
    ours = WordVectors(embedding, "runs/wiki")
    assert "king" in ours and "King" in ours and "kingg" not in ours and 3 not in ours
    assert ours.has_index_for("king") and not ours.has_index_for("kingg")
    for ask in (ours.__getitem__, ours.get_vector, ours.most_similar, ours.similar_by_word):
        with pytest.raises(KeyError) as caught:
            ask("kingg")  # type: ignore[operator]
        assert str(caught.value).startswith(
            "'kingg' is not among the 3,000 words of runs/wiki; did you mean king"
        )
    assert ours.most_similar() == []
    assert repr(ours) == "WordVectors(3,000 words, 40 numbers each)"


@pytest.mark.parametrize("binary", [False, True])
def test_files(binary: bool, embedding: Embedding, tmp_path: Path) -> None:
    path = tmp_path / "vectors.gz"
    for _ in range(2):
        manyhands.WordVectors(embedding).save_word2vec_format(path, binary=binary)
    again = manyhands.WordVectors.load(path)
    assert again.index_to_key == embedding.vocabulary.words.to_pylist()
    assert np.array_equal(again.vectors, embedding.vectors)


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifiers")
    raw = folder / "raw.txt"
    raw.write_text("__label__a good fresh food\n__label__b bad old food\n" * 30)
    for model in ("ngrams", "fasttext"):
        chars = {"char_ngrams": "2-3"} if model == "fasttext" else {}
        manyhands.train(raw, folder / model, model=model, threads=1, deterministic=True, **chars)
    return folder


def test_bundles_of_classifiers(classifiers: Path, tmp_path: Path) -> None:
    vectors = WordVectors.load(classifiers / "fasttext")
    assert "good" in vectors and set(vectors.index_to_key) == set("good fresh bad old food".split())
    assert "fresher" in vectors and not vectors.has_index_for("fresher"), "by its letters"
    assert len(vectors.most_similar("fresher")) == 5
    loaded = manyhands.load_bundle(classifiers / "fasttext")
    for to in ("vec", "word2vec"):
        convert(loaded, to, str(tmp_path / to))
    assert (tmp_path / "vec").read_bytes() == (tmp_path / "word2vec").read_bytes()
    without = "ngrams models have no word vectors; train one with --model fasttext, skipgram or charlstm"
    with pytest.raises(UsageError, match=without):
        open_embedding(classifiers / "ngrams")
    with pytest.raises(UsageError, match=without):
        convert(manyhands.load_bundle(classifiers / "ngrams"), "glove", str(tmp_path / "glove"))
    with pytest.raises(InputError, match="is not a complete bundle"):
        open_embedding(tmp_path)


def test_training_leaves_nothing_behind(
    classifiers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    settings = {"model": "fasttext", "threads": 1, "deterministic": True}
    passing = WordVectors.train(classifiers / "raw.txt", **settings)
    assert not list(tmp_path.glob("manyhands-*"))
    kept = WordVectors.train(classifiers / "raw.txt", tmp_path / "kept", **settings)
    assert np.array_equal(passing.vectors, kept.vectors) and kept.name == str(tmp_path / "kept")


def test_the_verbs(embedding: Embedding, tmp_path: Path, manyhands: Callable[..., Any]) -> None:
    WordVectors(embedding).save_word2vec_format(tmp_path / "wiki.bin", binary=True)
    expected = WordVectors(embedding).most_similar("king", topn=2)
    shown = manyhands("nearest", "wiki.bin", "king", "--top", 2)
    assert shown.code == 0 and shown.out == "".join(f"{word}\t{cosine:.4f}\n" for word, cosine in expected)
    several = manyhands("nearest", "wiki.bin", "-", "queen", "--top", 2, stdin="king\n\nzürich\n".encode())
    assert several.out.startswith("king:\n" + shown.out + "zürich:\n") and "queen:\n" in several.out
    rows = manyhands("nearest", "wiki.bin", "king", "queen", "--top", 2, "--json").out.splitlines()
    objects = [json.loads(row) for row in rows]
    assert [found["word"] for found in objects] == ["king", "queen"]
    assert [near["word"] for near in objects[0]["nearest"]] == [word for word, _ in expected]
    wrong = manyhands("nearest", "wiki.bin", "kingg")
    assert (
        wrong.code == 3 and "'kingg' is not among the 3,000 words of wiki.bin; did you mean king" in wrong.err
    )
    added = manyhands("analogy", "wiki.bin", "word1", "word2", "king", "--json", "--top", 3)
    answers = json.loads(added.out)
    best = WordVectors(embedding).most_similar(["word2", "king"], ["word1"], topn=3)
    assert [answer["word"] for answer in answers["answers"]] == [word for word, _ in best]
    multiplied = manyhands("analogy", "wiki.bin", "word1", "word2", "king", "--method", "mul")
    assert multiplied.code == 0 and len(multiplied.out.splitlines()) == 10
    assert manyhands("analogy", "wiki.bin", "word1", "word2", "king", "--method", "div").code == 2


def test_products_as_gensim_multiplies(embedding: Embedding, theirs: Any) -> None:
    from manyhands.models.words.nearest import complete

    expected = theirs.most_similar_cosmul(positive=["word2", "king"], negative=["word1"], topn=10)
    found = complete(embedding, "word1", "word2", "king", 10, "mul", of="it")
    assert [word for word, _ in found] == [word for word, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], rel=1e-4)
