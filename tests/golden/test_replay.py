"""What the command line makes stays what it was: a few of the runs in ``tools/replay.py``, digest by digest.

If a change is meant to change what a run computes, record it again and say so in the changelog.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_runs_still_make_what_was_recorded() -> None:
    command = [sys.executable, "tools/replay.py", "--small", "--check", "tests/golden/replay.json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
