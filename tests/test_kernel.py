"""Kernels are compiled anew when anything that they were made of has changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import manyhands

USES = """
import numpy as np
from manyhands.text.hashing import mix_array
print(int(mix_array(np.arange(3, dtype=np.uint64), np.uint64(1)).sum()))
"""


def run(package: Path) -> str:
    env = {**os.environ, "PYTHONPATH": str(package), "NUMBA_CACHE_DIR": str(package / "kept")}
    return subprocess.check_output([sys.executable, "-c", USES], env=env, text=True, timeout=120)


def test_a_change_below_a_kernel_is_noticed(tmp_path: Path) -> None:
    """``hashing`` takes its decorator from ``kernel``: another file, that numba does not look at."""
    shutil.copytree(
        Path(manyhands.__file__).parent, tmp_path / "manyhands", ignore=shutil.ignore_patterns("__pycache__")
    )
    first = run(tmp_path)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").rglob("*.nb?")}
    assert kept
    assert run(tmp_path) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").rglob("*.nb?")} == kept
    with (tmp_path / "manyhands" / "kernel.py").open("a") as file:
        file.write("\n# changed\n")
    assert run(tmp_path) == first
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").rglob("*.nbi")}
    assert all(after[path] != kept[path] for path in after)
