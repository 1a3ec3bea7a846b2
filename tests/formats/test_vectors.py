"""Files of word vectors: what is written reads back to the last digit, and what lies is told."""

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.errors import InputError, MissingPartError, UsageError
from manyhands.formats import vectors
from manyhands.formats.vector_writing import WRITERS, write_embedding
from manyhands.formats.vectors import read_embedding
from manyhands.models.pretrained import fill_from, read_pretrained
from manyhands.models.recurrent.sequences import Lexicon
from manyhands.text.corpus import corpus_of
from manyhands.text.embedding import Embedding
from manyhands.text.ragged import from_strings
from manyhands.text.vocabulary import Vocabulary

READABLE = ["word2vec", "word2vec-binary", "glove"]
BLANKS = " \t\n\v\f\r"


def embedding_of(words: list[str], vectors: object) -> Embedding:
    table = np.array(vectors, np.float32).reshape(len(words), -1)
    return Embedding(Vocabulary(pa.array(words, pa.large_string()), np.arange(len(words))[::-1]), table)


def some(rows: int = 500, dim: int = 20) -> Embedding:
    draw = np.random.default_rng(3)
    return embedding_of([f"wörd{n}" for n in range(rows)], draw.normal(size=(rows, dim)))


def read(path: Path, data: bytes) -> Embedding:
    path.write_bytes(data)
    return read_embedding(str(path))


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
letters = st.characters(exclude_categories=["Cs"], exclude_characters=BLANKS)


@given(st.data())
def test_every_word_and_number_comes_back(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    words = data.draw(st.lists(st.text(letters, min_size=1), min_size=1, max_size=6, unique=True))
    dim = data.draw(st.integers(2, 5))
    numbers = data.draw(st.lists(finite, min_size=len(words) * dim, max_size=len(words) * dim))
    embedding = embedding_of(words, numbers)
    for to in READABLE:
        out = tmp_path_factory.getbasetemp() / f"any.{to}"
        assert write_embedding(embedding, to, str(out), overwrite=True) == [str(out)]
        found = read_embedding(str(out))
        assert found.vocabulary.words.to_pylist() == words
        assert found.vectors.tobytes() == embedding.vectors.tobytes(), to


@pytest.mark.parametrize("to", READABLE)
def test_many_pieces(to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedding, out = some(), tmp_path / "vectors.gz"
    monkeypatch.setattr("manyhands.formats.vector_writing.NUMBERS_AT_ONCE", 130)
    monkeypatch.setattr("manyhands.storage.files.HEAD_BYTES", 30)
    monkeypatch.setattr(vectors, "PIECE_BYTES", 217)
    write_embedding(embedding, to, str(out))
    assert out.read_bytes()[:2] == b"\x1f\x8b"
    found = read_embedding(str(out))
    assert found.vocabulary.words.equals(embedding.vocabulary.words)
    assert np.array_equal(found.vectors, embedding.vectors)
    assert gzip.decompress(out.read_bytes()).startswith(b"500 20\n") == (to != "glove")


@pytest.mark.parametrize("to", READABLE)
def test_words_that_the_format_cannot_hold_are_left_out(to: str, tmp_path: Path) -> None:
    embedding = embedding_of(["a", "b c", "", "d\n", "é\u00a0"], np.arange(10))
    write_embedding(embedding, to, str(tmp_path / "out"))
    found = read_embedding(str(tmp_path / "out"))
    assert found.vocabulary.words.to_pylist() == ["a", "é\u00a0"]
    assert found.vectors.tolist() == [[0, 1], [8, 9]]


def test_layouts_of_others(tmp_path: Path) -> None:
    path = tmp_path / "file"
    fasttext = read(path, b"2 3 \nthe 0.5 -1 2e-3 \nof +1 1e-60 3 \r\n\n")
    assert fasttext.vectors.tolist() == np.float32([[0.5, -1, 2e-3], [1, 0, 3]]).tolist()
    assert read(path, b"the\t1\t2\nof  3 4").vectors.tolist() == [[1, 2], [3, 4]]
    numbers = np.array([1, 2], "<f4").tobytes()
    without, with_ends = (
        b"2 2\na " + numbers + b"b " + numbers,
        b"2 2\na " + numbers + b"\nb " + numbers + b"\n",
    )
    for data in (without, with_ends):
        found = read(path, data)
        assert found.vocabulary.words.to_pylist() == ["a", "b"] and found.vectors.tolist() == [[1, 2], [1, 2]]


ONE = np.array([1, 2, 3], "<f4").tobytes()
NAN = np.array([1, np.nan, 3], "<f4").tobytes()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "holds no vectors"),
        (b"\n\n", "holds no vectors"),
        (b"2 3\n", "holds no vectors"),
        (b"5 3\na 1 2 3\nb 1 2 3\nc 1 2 3\nd 1 2 3\n", "says 5 words of 3 numbers and holds 4"),
        (b"1 3\na 1 2 3\nb 1 2 3\n", "says 1 words of 3 numbers and holds 2"),
        (b"2 4\na 1 2 3\nb 1 2 3\n", "line 2 has 3 numbers; the first line says 2 words of 4"),
        (b"2 0\na\nb\n", "says 2 words of 0 numbers; a vector has 1 to"),
        (b"2 99999999999\na 1 2\nb 1 2\n", "says 2 words of 99,999,999,999 numbers"),
        (b"a 1 2 3\nb 1 2\n", "line 2 has 2 numbers; the lines before it have 3"),
        (b"a 1 2 3\nb 1 2 3 4\n", "line 2 has 4 numbers; the lines before it have 3"),
        (b"a 1 2\nb 1 2\nc 1 2\na 3 4\n", "has 'a' twice, at line 1 and line 4"),
        (b"3 2\na 1 2\nb 1 2\nb 1 2\n", "has 'b' twice, at line 3 and line 4"),
        (b"2 3\na " + ONE + b"a " + ONE, "has 'a' twice, at word 1 and word 2"),
        (b"a 1 2\nb 1 nan\n", "line 2 holds a number that is not finite, in the vector of 'b'"),
        (b"a 1 -inf\n", "line 1 holds a number that is not finite, in the vector of 'a'"),
        (b"a 1 1e39\n", "line 1 holds a number that is not finite"),
        (b"2 3\na " + ONE + b"b " + NAN, "word 2 holds a number that is not finite, in the vector of 'b'"),
        (b"a 1 2\nb 1 x2\n", "line 2 is not a vector: 'x2' is not a number"),
        (b"2 2\na 1 x2\nb 1 2\n", "line 2 is not a vector: 'x2' is not a number"),
        (b"a\n", "line 1 is not a vector: no number follows 'a'"),
        (b"a 1 2\n 1 2\n", "line 2 begins with a blank where a word should be"),
        (b"a 1 2\n\nb 1 2\n", "line 2 is empty; take it out"),
        (b"2 3\na " + ONE + b" " + ONE, "word 2 is empty"),
        (b"a 1 2\n\xff 1 2\n", "line 2: the word is not UTF-8"),
        (b"1 3\n\xff\x00 " + ONE, "word 1: the word is not UTF-8"),
        (b"2 3\na " + ONE + b"b " + ONE[:-1], "ends within word 2; the first line says 2 words of 3 numbers"),
        (b"5 3\na " + ONE + b"b " + ONE, "says 5 words of 3 numbers and holds 2"),
        (b"1 3\na " + ONE + b"b " + ONE, "says 1 words of 3 numbers and holds 2"),
        (b"2 4\na " + ONE + b"b " + ONE, "ends within word"),
    ],
)
@pytest.mark.parametrize("pieces", [1 << 20, 5])
def test_unsound_files(
    data: bytes, message: str, pieces: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "PIECE_BYTES", pieces)
    monkeypatch.setattr("manyhands.storage.files.HEAD_BYTES", max(pieces, 40))
    with pytest.raises(InputError) as caught:
        read(tmp_path / "file", data)
    assert message in str(caught.value) and str(tmp_path / "file") in str(caught.value)


@pytest.mark.parametrize("line", [b"a 1 2 3\n", b"a " + ONE])
def test_a_head_that_claims_much_takes_no_memory(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    read(path, b"1 3\n" + line)  # kernels are compiled
    tracemalloc.start()
    for head in (b"999999999999999 3\n", b"1000000 1000000\n"):
        with pytest.raises(InputError):
            read(path, head + line)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20, "what is read at once takes 8 MB, and nothing is a multiple of the claims"


def test_no_vectors_at_all(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"\x00" * ((1 << 24) + (1 << 20)))
    with pytest.raises(InputError, match="has no lines; it is not a file of vectors"):
        read_embedding(str(tmp_path / "long"))
    with pytest.raises(InputError, match="word 1 has no end"):
        read(tmp_path / "long", b"2 3\n" + b"\x01" * (1 << 17))
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("a 1\n")
    with pytest.raises(UsageError, match="is 2 files; name one"):
        read_embedding(str(tmp_path / "*.txt"))
    with pytest.raises(InputError, match="does not exist"):
        read_embedding(str(tmp_path / "nowhere"))


def test_writing_where_something_stands(tmp_path: Path) -> None:
    embedding, out = some(3, 2), tmp_path / "there"
    with pytest.raises(UsageError, match="no format 'vecs' for word vectors; there are: word2vec, "):
        write_embedding(embedding, "vecs", str(out))
    for to in ("keyedvectors", "projector"):
        with pytest.raises(UsageError, match=f"{to} is several files"):
            write_embedding(embedding, to, "-")
    out.write_text("mine")
    for to in WRITERS:
        with pytest.raises(UsageError, match="exists already"):
            write_embedding(embedding, to, str(out))
    with pytest.raises(UsageError, match="is not a folder for the projector"):
        write_embedding(embedding, "projector", str(out), overwrite=True)
    assert out.read_text() == "mine"


def test_projector(tmp_path: Path) -> None:
    embedding = embedding_of(["a", "b c", "d\te", ""], [0.1, 2, 3, 4, 5, 6, 7, 8])
    out = tmp_path / "shown"
    for overwrite in (False, True):
        files = write_embedding(embedding, "projector", str(out), overwrite=overwrite)
        assert files == [f"{out}/vectors.tsv", f"{out}/metadata.tsv"]
        assert (out / "metadata.tsv").read_text() == "a\nb c\n", "a column alone has no heading"
        assert (out / "vectors.tsv").read_text() == "0.1\t2\n3\t4\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shown"]


def test_gensim_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gensim.models", None)
    with pytest.raises(MissingPartError, match=r"manyhands\[gensim\]"):
        write_embedding(some(3, 2), "keyedvectors", str(tmp_path / "out"))
    with pytest.raises(UsageError, match="cannot be compressed"):
        write_embedding(some(3, 2), "keyedvectors", str(tmp_path / "out.gz"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "data", [b"9 3\nb 1 2 3\n\xff 7 7 7\nc 1 2 3\nb 4 5 6\n", b"2 3\nb " + ONE + b"\xff " + ONE]
)
def test_vectors_to_begin_with_are_taken_from_what_there_is(data: bytes, tmp_path: Path) -> None:
    """A file cut from a larger one will do, and so will words that are no text or come twice."""
    path = tmp_path / "file"
    path.write_bytes(data)
    lexicon = Lexicon(corpus_of(from_strings(["a b"])).hashes)
    table = np.zeros((2, 3), np.float32)
    blocks = ((lexicon.places(block.hashes), block.vectors) for block in read_pretrained(str(path), 3))
    found = fill_from(blocks, table)
    assert (found, table.tolist()) == (
        (2, [[0, 0, 0], [4, 5, 6]]) if b"c" in data else (1, [[0, 0, 0], [1, 2, 3]])
    )
    with pytest.raises(UsageError, match=r"(line 2|word 1) has 3 numbers; --dim is 2"):
        list(read_pretrained(str(path), 2))
