"""`manyhands prepare --engine spark`, timed as its peers are: without the start of Python and Spark."""

from functools import partial
from pathlib import Path

from rules import VOCABULARY_SIZE, Stored, arguments, report, timed

from manyhands import prepare as make
from manyhands.engines.spark import spark


def prepare(source: Path, output: Path) -> Stored:
    manifest = make(source, output, vocabulary_size=VOCABULARY_SIZE, engine="spark").manifest
    return Stored(manifest.rows, manifest.tokens, manifest.tokens)


if __name__ == "__main__":
    source, output = arguments(__doc__)
    with spark("local[2]", [], "bench"):
        result = timed(partial(prepare, source, output))
    report(result)
