"""How the input is shared out among the tasks that read it."""

from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise

from manyhands.data.reading import Given
from manyhands.data.sources.source import kind_of_source
from manyhands.settings import PrepareSettings
from manyhands.storage.files import InputStream
from manyhands.storage.ranges import InputRange

LEAST_BYTES = 1 << 20  # a smaller piece is not worth a task


@dataclass(frozen=True)
class Span:
    """A file, or the lines of it that begin from ``start`` up to ``end``."""

    given: int  # its place among the files
    start: int = 0
    end: int | None = None  # None: all of it, in whatever format

    def open(self, given: list[Given]) -> InputStream:
        file = given[self.given].file
        return InputStream(file) if self.end is None else InputRange(file, self.start, self.end)


def cut_input(given: list[Given], settings: PrepareSettings, tasks: int) -> list[Span]:
    """Every file whole, or in pieces where it is large and of lines; in the order of the input."""
    most = max(sum(item.file.size or 0 for item in given) // tasks, LEAST_BYTES)
    spans = []
    for number, item in enumerate(given):
        size = item.file.size or 0
        if size > most and _can_be_cut(item, settings):
            pieces = -(-size // most)
            bounds = [size * k // pieces for k in range(pieces + 1)]
            spans += [Span(number, *bound) for bound in pairwise(bounds)]
        else:
            spans.append(Span(number))
    return spans


def share_out(spans: list[Span], given: list[Given], tasks: int) -> list[list[int]]:
    """The numbers of the spans that each task reads: some large one, or many small ones."""
    sizes = [(given[s.given].file.size or 0) if s.end is None else s.end - s.start for s in spans]
    most = max(sum(sizes) // tasks, 1)
    shares: list[list[int]] = []
    room = 0
    for number, size in enumerate(sizes):
        if size > room or not shares:
            shares.append([])
            room = most
        shares[-1].append(number)
        room -= size
    return shares


def _can_be_cut(item: Given, settings: PrepareSettings) -> bool:
    with closing(InputStream(item.file)) as stream:
        return not stream.compressed and bool(stream.head()) and kind_of_source(stream, settings).by_line
