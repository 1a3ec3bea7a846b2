"""Kernels are compiled anew when anything that they were made of has changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import manyhands
from tests.conftest import need

USES = """
import numpy as np
from manyhands.text.hashing import mix_array
print(int(mix_array(np.arange(3, dtype=np.uint64), np.uint64(1)).sum()))
"""


def run(package: Path) -> str:
    env = {**os.environ, "PYTHONPATH": str(package), "NUMBA_CACHE_DIR": str(package / "kept")}
    return subprocess.check_output([sys.executable, "-c", USES], env=env, text=True, timeout=500)


def test_a_change_below_a_kernel_is_noticed(tmp_path: Path) -> None:
    """``hashing`` takes its decorator from ``compile``: another file, that numba does not look at."""
    shutil.copytree(
        Path(manyhands.__file__).parent, tmp_path / "manyhands", ignore=shutil.ignore_patterns("__pycache__")
    )
    first = run(tmp_path)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").rglob("*.nb?")}
    assert kept
    assert run(tmp_path) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").rglob("*.nb?")} == kept
    with (tmp_path / "manyhands" / "kernels" / "compile.py").open("a") as file:
        file.write("\n# changed\n")
    assert run(tmp_path) == first
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").rglob("*.nbi")}
    assert all(after[path] != kept[path] for path in after)


AHEAD = """
import sys
from pathlib import Path
import numpy as np
from numba import typeof
import compile_kernels
from manyhands.kernels.ahead import TABLE, kind
arguments = np.arange(3, dtype=np.uint64), np.uint64(1)
key = "manyhands.text.hashing", "mix_array", ";".join(map(kind, arguments))
called, folder = {key: [typeof(one) for one in arguments]}, Path(sys.argv[1])
compile_kernels.compile_library(called, "x86-64-v3", folder)
compile_kernels.write_table(called, folder)
"""
WITHOUT_NUMBA = "import sys; sys.modules['numba'] = None" + USES


def test_a_kernel_compiled_ahead_needs_no_numba_while_its_sources_are_the_same(tmp_path: Path) -> None:
    need("a C compiler", shutil.which("cc"))
    need("a processor with AVX2", {"avx2", "fma"} <= set(Path("/proc/cpuinfo").read_text().split()))
    package, folder = tmp_path / "manyhands", tmp_path / "manyhands" / "kernels" / "compiled"
    shutil.copytree(
        Path(manyhands.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "compiled")
    )
    folder.mkdir()
    expected = run(tmp_path)
    tools = Path(__file__).parents[1] / "tools"
    path = os.pathsep.join([str(tmp_path), str(tools)])
    env = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    subprocess.run([sys.executable, "-c", AHEAD, str(folder)], env=env, check=True, timeout=500)
    folder.chmod(0o555)
    env["PYTHONPATH"] = str(tmp_path)
    assert subprocess.check_output([sys.executable, "-c", WITHOUT_NUMBA], env=env, text=True) == expected
    with (package / "text" / "hashing.py").open("a") as file:
        file.write("\n# changed\n")
    command = [sys.executable, "-c", WITHOUT_NUMBA]
    stale = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert stale.returncode and "numba" in stale.stderr
    assert run(tmp_path) == expected
    folder.chmod(0o755)
