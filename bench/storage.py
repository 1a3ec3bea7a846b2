"""A prepared dataset read for training, from where it may stand: a local disk, a network mount, S3.

What is timed is what training does: open the dataset, then take all rows in random order, 4,096 at a time,
twice. ``S3, first`` fetches the dataset into the cache and checks it; ``S3, again`` opens the copy. The
network mount is a file system in user space (FUSE) on the same object store, by the store's own client: this
machine's kernel has no NFS client, so NFS itself is not measured. Server and reader share one machine: there
is no network between them, only its protocols. Files read cold were dropped from the page cache first.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from measure import save

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.store import environment, s3_server, weed_program

from manyhands.data.dataset import open_dataset
from manyhands.data.prepare.prepare import prepare
from manyhands.data.sample import sample

BUCKET = "bench"
ROWS_AT_ONCE = 4096


def drop(folder: Path) -> None:
    """Have the files of a folder read from where they stand, not from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def read(place: str) -> dict[str, float]:
    began = time.perf_counter()
    split = open_dataset(place)["train"]
    times = {"open_seconds": time.perf_counter() - began}
    for epoch in (1, 2):
        order = np.random.default_rng(epoch).permutation(len(split))
        began, tokens = time.perf_counter(), 0
        for start in range(0, len(order), ROWS_AT_ONCE):
            tokens += int(split.take(order[start : start + ROWS_AT_ONCE])[0].sum(dtype=np.int64) > 0)
        times[f"epoch_{epoch}_seconds"] = time.perf_counter() - began
    return {name: round(value, 3) for name, value in times.items()}


@contextmanager
def mounted(folder: Path, filer: str) -> Iterator[Path | None]:
    """The store as a folder; None where that cannot be had."""
    place = folder / "mount"
    place.mkdir()
    if not shutil.which("fusermount3") or not Path("/dev/fuse").exists():
        yield None
        return
    command = [str(weed_program()), "mount", f"-filer={filer}", f"-dir={place}", "-dirAutoCreate"]
    process = subprocess.Popen(
        [*command, f"-cacheDir={folder}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            if place.is_mount() or process.poll() is not None:
                break
            time.sleep(0.2)
        yield place if place.is_mount() else None
    finally:
        subprocess.run(["fusermount3", "-u", "-z", str(place)], check=False)
        process.terminate()
        process.wait()


def rounds(folder: Path, prepared: Path, mount: Path | None, repeats: int) -> dict[str, dict[str, float]]:
    """Every way in turn; of each figure, the best."""
    found: dict[str, list[dict[str, float]]] = {}
    remote = f"s3://{BUCKET}/prepared"
    for _ in range(repeats):
        drop(prepared)
        found.setdefault("local disk, cold", []).append(read(str(prepared)))
        found.setdefault("local disk, again", []).append(read(str(prepared)))
        shutil.rmtree(folder / "cache", ignore_errors=True)
        found.setdefault("S3, first", []).append(read(remote))
        found.setdefault("S3, again", []).append(read(remote))
        if mount is not None:
            copy = mount / "buckets" / BUCKET / "prepared"
            drop(copy)
            found.setdefault("FUSE mount, cold", []).append(read(str(copy)))
            found.setdefault("FUSE mount, again", []).append(read(str(copy)))
    return {way: {name: min(run[name] for run in runs) for name in runs[0]} for way, runs in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "s3").mkdir()
        sample(options.rows, str(folder / "raw.jsonl"), seed=3)
        prepare(folder / "raw.jsonl", folder / "prepared")
        size = sum(path.stat().st_size for path in (folder / "prepared").iterdir())
        ports: dict[str, int] = {}
        with s3_server(folder / "s3", BUCKET, ports) as address:
            os.environ |= environment(address, folder / "cache")
            prepare(folder / "raw.jsonl", f"s3://{BUCKET}/prepared")
            with mounted(folder, f"127.0.0.1:{ports['filer']}.{ports['filer.grpc']}") as mount:
                results: dict[str, Any] = rounds(folder, folder / "prepared", mount, options.repeats)
    missing = {"NFS": "this machine's kernel has no NFS client"}
    if mount is None:
        missing["FUSE mount"] = "the mount did not come up"
    for way, figures in results.items():
        print(way, json.dumps(figures))
    facts: dict[str, Any] = {"rows": options.rows, "megabytes": round(size / 1e6), "repeats": options.repeats}
    save(
        "storage",
        {**facts, "load": round(os.getloadavg()[0], 1), "results": results, "not_measured": missing},
    )


if __name__ == "__main__":
    main()
