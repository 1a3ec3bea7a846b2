"""Rows of numbers as files that other tools read: NumPy, Parquet and CSV; written as the rows come."""

import shutil
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from manyhands.errors import UsageError
from manyhands.kernels.simd import Floats
from manyhands.storage.files import writing


def write_rows(blocks: Iterable[Floats], out: str) -> int:
    """Write all rows in the format that the name of the file ends with; gives how many there are."""
    write = writer_of(out)
    with writing(out) as file:
        return write(blocks, file)


def writer_of(out: str) -> Callable[[Iterable[Floats], Any], int]:
    for ending, write in WRITERS.items():
        if out.endswith(ending):
            return write
    raise UsageError(f"{out} must end in {', '.join(WRITERS)}: that says how vectors are written")


def _write_npy(blocks: Iterable[Floats], file: Any) -> int:
    """How many rows there are stands first, and is known last."""
    rows, columns = 0, 0
    with tempfile.TemporaryFile() as scratch:
        for block in blocks:
            scratch.write(np.ascontiguousarray(block, "<f4").data)
            rows, columns = rows + len(block), block.shape[1]
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, columns)}
        np.lib.format.write_array_header_1_0(file, header)
        scratch.seek(0)
        shutil.copyfileobj(scratch, file)
    return rows


def _write_parquet(blocks: Iterable[Floats], file: Any) -> int:
    def table(block: Floats) -> pa.Table:
        values = pa.array(np.ascontiguousarray(block, np.float32).ravel())
        return pa.table({"vector": pa.FixedSizeListArray.from_arrays(values, block.shape[1])})

    return _write_tables(map(table, blocks), lambda schema: pa.parquet.ParquetWriter(file, schema))


def _write_csv(blocks: Iterable[Floats], file: Any) -> int:
    tables = (pa.table({f"v{n}": column for n, column in enumerate(block.T)}) for block in blocks)
    return _write_tables(tables, lambda schema: pa.csv.CSVWriter(file, schema))


def _write_tables(tables: Iterable[pa.Table], open_writer: Callable[[pa.Schema], Any]) -> int:
    rows, writer = 0, None
    for table in tables:
        writer = writer or open_writer(table.schema)
        writer.write_table(table)
        rows += len(table)
    if writer:
        writer.close()
    return rows


WRITERS = {".npy": _write_npy, ".parquet": _write_parquet, ".csv": _write_csv}
