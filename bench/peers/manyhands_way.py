"""`manyhands prepare`, timed as its peers are: the job without the start of Python."""

from functools import partial
from pathlib import Path

from rules import VOCABULARY_SIZE, Stored, arguments, report, timed

from manyhands import prepare as make  # imported here, so that it counts as starting up


def prepare(source: Path, output: Path) -> Stored:
    """The whole job, from raw lines to a dataset that is on the disk."""
    manifest = make(source, output, vocabulary_size=VOCABULARY_SIZE).manifest
    return Stored(manifest.rows, manifest.tokens, manifest.tokens)


if __name__ == "__main__":
    source, output = arguments(__doc__)
    report(timed(partial(prepare, source, output)))
