"""How the input is shared out among the tasks that read it."""

from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise

from manyhands.data.prepare.partitions import SourceFile
from manyhands.data.sources.source import source_class
from manyhands.settings import PrepareSettings
from manyhands.storage.files import InputFile, InputStream
from manyhands.storage.ranges import InputRange

LEAST_BYTES = 1 << 20  # a smaller range is not worth a task


@dataclass(frozen=True)
class FileRange:
    """A file, or the lines of it that begin from ``start`` up to ``end``."""

    source: int  # its place among the files
    start: int = 0
    end: int | None = None  # None: all of it, in whatever format

    def open(self, file: InputFile) -> InputStream:
        return InputStream(file) if self.end is None else InputRange(file, self.start, self.end)


def split_files(files: list[SourceFile], settings: PrepareSettings, tasks: int) -> list[FileRange]:
    """Every file whole, or in ranges where it is large and of lines; in the order of the input."""
    most = max(sum(source.file.size or 0 for source in files) // tasks, LEAST_BYTES)
    ranges = []
    for number, source in enumerate(files):
        size = source.file.size or 0
        if size > most and _is_splittable(source.file, settings):
            count = -(-size // most)
            bounds = [size * k // count for k in range(count + 1)]
            ranges += [FileRange(number, *bound) for bound in pairwise(bounds)]
        else:
            ranges.append(FileRange(number))
    return ranges


def assign_to_tasks(ranges: list[FileRange], files: list[SourceFile], tasks: int) -> list[list[int]]:
    """The numbers of the ranges that each task reads: some large one, or many small ones."""
    sizes = [(files[r.source].file.size or 0) if r.end is None else r.end - r.start for r in ranges]
    most = max(sum(sizes) // tasks, 1)
    assignments: list[list[int]] = []
    room = 0
    for number, size in enumerate(sizes):
        if size > room or not assignments:
            assignments.append([])
            room = most
        assignments[-1].append(number)
        room -= size
    return assignments


def _is_splittable(file: InputFile, settings: PrepareSettings) -> bool:
    with closing(InputStream(file)) as stream:
        return not stream.compressed and bool(stream.head()) and source_class(stream, settings).by_line
