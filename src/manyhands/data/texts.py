"""Texts to predict, from raw files: every row of the input, in its order, whatever it holds."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial

from manyhands.data.blocks import Block, blocks, cut_lines
from manyhands.data.reading import texts_of
from manyhands.data.sources.source import Piece, Records, open_source
from manyhands.data.sources.text import PlainText
from manyhands.errors import InputError
from manyhands.records import Progress
from manyhands.settings import PrepareSettings
from manyhands.storage.files import STDIN, InputStream, expand
from manyhands.text.ragged import Ragged

ROWS_AT_ONCE = 4096


def _text_pieces(sources: Sequence[str], settings: PrepareSettings, progress: Progress) -> Iterator[Piece]:
    """Pieces of all files. Standard input is lines of text unless another format is asked for."""
    files = expand(sources)
    sizes = [file.size for file in files]
    progress.stage("predict", None if None in sizes else sum(size or 0 for size in sizes), "B")
    finished = 0
    for file in files:
        with closing(InputStream(file)) as stream:
            if not stream.head():
                continue
            plain = file.name == STDIN and settings.format == "auto"
            source = None if plain else open_source(stream, settings)
            lines = source is None or isinstance(source, PlainText)
            for piece in _lines(stream) if lines or source is None else source.pieces():
                yield piece
                progress.advance(finished + stream.position())
        finished += file.size or 0


def _lines(stream: InputStream) -> Iterator[Piece]:
    """A text a line. (As a corpus, plain text is cut at long lines as well, which would add rows.)"""
    for block in blocks(stream, cut_lines, "the line is longer than 8 MiB"):
        yield partial(_line_records, block)


def _line_records(block: Block) -> Records:
    return Records(block.file, block.lines, block.rows, lost=block.rejected)


def texts_of_files(sources: Sequence[str], settings: PrepareSettings, progress: Progress) -> Iterator[Ragged]:
    """A few thousand texts at a time, one for each row; what is not valid UTF-8 is an empty text."""
    for piece in _text_pieces(sources, settings, progress):
        records = piece()
        if records.lost:
            raise InputError(f"{records.lost[0]}; every row must have a prediction, so mend or remove it")
        texts = texts_of(records)[0]
        for start in range(0, len(texts), ROWS_AT_ONCE):
            yield Ragged(texts.data, texts.offsets[start : start + ROWS_AT_ONCE + 1])
