"""Raw reviews to a dataset, in three passes that each touch every row once.

Reading parses, normalises, hashes and numbers words; equal texts meet in one partition of the
hash. Folding makes one row of them, draws its split and counts its words. Writing looks up the
final ids.
Rows stand in the order of their hashes, so neither the order of the input, nor memory, nor
threads, nor the engine change a byte of what comes out.
"""

import os
from collections.abc import Sequence
from typing import Any, Literal

from manyhands.data.dataset import Dataset, open_dataset
from manyhands.data.manifest import DATASET
from manyhands.data.prepare.local import prepare_locally
from manyhands.data.prepare.partitions import PREFIXES, SourceFile
from manyhands.data.prepare.spark.driver import SparkOptions, prepare_on_spark
from manyhands.errors import UsageError
from manyhands.machine import resources_for
from manyhands.records import Progress, Silent
from manyhands.settings import PrepareSettings
from manyhands.storage.destination import Staged, destination
from manyhands.storage.files import STDIN, StrPath, expand


def prepare(
    sources: StrPath | Sequence[StrPath],
    out: StrPath,
    *,
    valid_files: Sequence[StrPath] = (),
    test_files: Sequence[StrPath] = (),
    engine: Literal["local", "spark"] = "local",
    master: str | None = None,
    partitions: int | None = None,
    spark_conf: Sequence[str] = (),
    overwrite: bool = False,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Dataset:
    """Prepare the reviews in ``sources`` (files, folders, globs, URLs) and open the outcome.

    ``settings`` are those of ``PrepareSettings``; ``text`` may be given as a dict. With the engine
    ``spark``, a cluster does the work; the outcome is the same to the last byte.
    """
    checked = PrepareSettings.create(**settings)
    spark = _spark_options(engine, master, partitions, spark_conf, memory, threads)
    names = [sources] if isinstance(sources, str | os.PathLike) else sources
    files = [
        SourceFile(file, origin)
        for origin, patterns in enumerate((names, valid_files, test_files))
        if patterns or origin == 0
        for file in expand(os.fspath(pattern) for pattern in patterns)
    ]
    standard_input = sum(source.file.name == STDIN for source in files)
    if standard_input > 1:
        raise UsageError("standard input can be read once, and not for two splits")
    if standard_input and spark:
        raise UsageError("Spark cannot read standard input; give a file that all machines see")
    resources = resources_for(memory, threads)
    staged = Staged()
    with destination(os.fspath(out), overwrite, DATASET, staged) as folder:
        if spark:
            prepare_on_spark(folder, os.fspath(out), staged, files, checked, spark, progress or Silent())
        else:
            prepare_locally(folder, files, checked, resources, progress or Silent())
    return open_dataset(out)


def _spark_options(
    engine: str,
    master: str | None,
    partitions: int | None,
    conf: Sequence[str],
    memory: int | str | None,
    threads: int | None,
) -> SparkOptions | None:
    """How Spark is used; None if it is not."""
    if engine not in ("local", "spark"):
        raise UsageError(f"there is no engine '{engine}'; there are: local, spark")
    foreign = {"master": master, "partitions": partitions, "spark-conf": conf or None}
    if engine == "spark":
        foreign = {"memory": memory, "threads": threads}
    for name, value in foreign.items():
        if value is not None:
            master_decides = "a master says how much it has: use --spark-conf"
            advice = master_decides if engine == "spark" else "add --engine spark"
            raise UsageError(f"--{name} is not for the engine {engine}; {advice}")
    if partitions is not None and not 1 <= partitions <= PREFIXES:
        raise UsageError(f"--partitions must be from 1 to {PREFIXES}, not {partitions}")
    return SparkOptions(master, partitions, tuple(conf)) if engine == "spark" else None
