"""The last pass of ``prepare``: final ids looked up, and every row put at its place in its part."""

from pathlib import Path

from manyhands.data.layout import Encoder, Ids, Layout
from manyhands.data.spool import Spool
from manyhands.data.store import PartWriter
from manyhands.kernel import Ints
from manyhands.parallel import side_by_side
from manyhands.records import Progress, Resources


class Writer:
    """Fills the parts of a dataset from the spool of kept rows."""

    def __init__(
        self, folder: Path, layout: Layout, final_ids: Ids, bases: Ints, spools: tuple[Spool, Spool]
    ) -> None:
        self._layout, self._final_ids, self._bases = layout, final_ids, bases
        self._parts = [PartWriter(folder, plan) for plan in layout.plans]
        self._rows, self._kept = spools
        self._partitions = 0

    def write(self, partitions: int, resources: Resources, progress: Progress) -> None:
        progress.stage("writing", partitions, "partitions")
        self._partitions = partitions
        for part, name, start, values in self._layout.beginnings():
            self._parts[part].write(name, start, values)
        for done, _ in enumerate(side_by_side(self._take, range(partitions), resources.threads)):
            progress.advance(done + 1)
        for writer in self._parts:
            writer.close()

    def _take(self, partition: int) -> None:
        kept, batch = self._kept.read(partition), self._rows.read(partition)
        if kept is None or batch is None:
            return
        self._rows.drop(partition)
        encoder = Encoder(self._layout, partition, self._partitions, self._final_ids, self._bases)
        for part, name, start, values in encoder.segments(kept, batch):
            self._parts[part].write(name, start, values)
