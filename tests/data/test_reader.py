"""The reader: one rule for labels, and every row of the input where ``predict`` needs that."""

from pathlib import Path

import pytest

from manyhands.data.reader import ParsedPiece, Reader, read_texts
from manyhands.errors import InputError
from manyhands.records import Silent
from manyhands.settings import PrepareSettings
from manyhands.storage.files import expand

STARS = '{"reviewText": "good food", "overall": 5}\n'
NAMES = '{"reviewText": "good food", "label": "fine"}\n'
PLAIN = "just words\n"


def write(folder: Path, *files: tuple[str, str | bytes]) -> list[str]:
    for name, data in files:
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return [str(folder / name) for name, _ in files]


def parse(reader: Reader, names: list[str]) -> list[ParsedPiece]:
    return [reader.parse(piece) for _, piece in reader.pieces(expand(names), Silent())]


@pytest.mark.parametrize(
    ("asked", "files", "scheme"),
    [
        ("auto", [("a.json", STARS)], "polarity"),
        ("auto", [("a.json", NAMES)], "as-is"),
        ("auto", [("a.txt", PLAIN)], "none"),
        ("auto", [("a.txt", PLAIN), ("b.json", STARS)], "none"),
        ("auto", [("a.json", STARS), ("b.txt", PLAIN)], "polarity"),
        ("auto", [("a.json", ""), ("b.json", NAMES)], "as-is"),
        ("stars", [("a.json", NAMES)], "stars"),
    ],
)
def test_labels_mean_what_is_asked_for_or_fits_the_first_file(tmp_path, asked, files, scheme) -> None:
    reader = Reader(PrepareSettings(labels=asked))
    parse(reader, write(tmp_path, *files))
    assert reader.label_encoder.scheme == scheme


@pytest.mark.parametrize("files", [[("a.txt", PLAIN)], [("a.json", STARS), ("b.txt", PLAIN)]])
def test_labels_that_are_required(tmp_path: Path, files: list[tuple[str, str]]) -> None:
    with pytest.raises(InputError, match=r"\.txt has no labels; give files that have"):
        parse(Reader(PrepareSettings(), require_labels=True), write(tmp_path, *files))


def test_an_input_without_rows_has_no_labels(tmp_path: Path) -> None:
    reader = Reader(PrepareSettings())
    assert parse(reader, write(tmp_path, ("a.json", ""))) == []
    with pytest.raises(InputError, match="the input holds no rows at all"):
        _ = reader.label_encoder


def test_why_rows_cannot_be_used(tmp_path: Path) -> None:
    lines = [
        b'{"reviewText": "good", "overall": 5, "w": 2}',
        b'{"reviewText": "bad", "overall": 9, "w": 1}',
        b'{"reviewText": "bad", "overall": 1, "w": -1}',
        b'{"reviewText": " ", "overall": 1, "w": -1}',
        b'{"reviewText": "\xff", "overall": 1, "w": 1}',
    ]
    names = write(tmp_path, ("a.json", b"\n".join(lines) + b"\n"))
    (piece,) = parse(Reader(PrepareSettings(weight_field="w")), names)
    assert (piece.usable.tolist(), piece.weights[0]) == ([0], 2)
    assert (piece.tally.rows, piece.tally.empty) == (5, 1)
    assert sorted(piece.tally.rejected) == [
        (2, "the label is not a whole number of stars from 1 to 5"),
        (3, "the weight is not a number from 0 up"),
        (5, "not valid UTF-8"),
    ]


def texts(names: list[str], **settings: object) -> list[str]:
    checked = PrepareSettings.create(labels="none", **settings)
    return [text for some in read_texts(names, checked, Silent()) for text in some.strings()]


def test_every_row_has_a_text_whatever_it_holds(tmp_path: Path) -> None:
    long = "long words " * 20_000  # a corpus would be cut here; a row to predict is not
    names = write(tmp_path, ("a.txt", f"one\n\n{long}\n".encode() + b"\xff\xfe\nlast"))
    assert [text.rstrip("\n") for text in texts(names)] == ["one", "", long, "", "last"]
    names = write(tmp_path, ("b.json", STARS + '{"overall": 5}\nno JSON\n'))
    assert texts(names) == ["good food", "", ""]


def test_a_row_that_cannot_be_had_is_an_error(tmp_path: Path) -> None:
    names = write(tmp_path, ("a.txt", b"one\n" + b"x" * (9 << 20) + b"\ntwo\n"))
    with pytest.raises(InputError, match="line 2: the line is longer than 8 MiB; every row must have"):
        texts(names)
