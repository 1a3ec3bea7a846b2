"""Sudden ends: kill -9 and Ctrl-C at any moment leave no dataset or a whole one."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import manyhands
from manyhands.errors import InputError

ROWS = 60_000


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("raw") / "raw.jsonl"
    manyhands.sample(ROWS, path, seed=1)
    return path


def start(raw: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "manyhands", "prepare", str(raw), "--out", str(out)]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )


def seconds_of_a_run(raw: Path, out: Path) -> float:
    began = time.monotonic()
    assert start(raw, out).wait(60) == 0
    return time.monotonic() - began


@pytest.mark.timeout(300)
def test_kill_at_random_moments(raw: Path, tmp_path: Path) -> None:
    whole = seconds_of_a_run(raw, tmp_path / "whole")
    expected = (tmp_path / "whole" / "manifest.json").read_bytes()
    draw = random.Random(7)
    out = tmp_path / "out"
    outcomes = {"none": 0, "whole": 0}
    leftovers = 0
    for attempt in range(24):
        # Most of a short run is loading Python; the last four fifths hold all the work.
        running = start(raw, out)
        time.sleep(whole * draw.uniform(0.2, 1.0))
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
        leftovers += any(".partial-" in path.name for path in tmp_path.iterdir())
        if out.exists():
            dataset = manyhands.open_dataset(out)
            dataset.verify()
            assert (out / "manifest.json").read_bytes() == expected, attempt
            outcomes["whole"] += 1
            subprocess.run(["rm", "-r", str(out)], check=True)
        else:
            with pytest.raises(InputError):
                manyhands.open_dataset(out)
            outcomes["none"] += 1
    assert outcomes["none"] >= 5, outcomes
    assert leftovers >= 3, "a killed run cannot clean up after itself"
    assert start(raw, out).wait(60) == 0
    assert (out / "manifest.json").read_bytes() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "whole"], "the next run did"


@pytest.mark.parametrize("moment", [0.3, 0.5, 0.6, 0.7, 0.8, 0.9])
def test_interrupt(raw: Path, tmp_path: Path, moment: float) -> None:
    whole = seconds_of_a_run(raw, tmp_path / "whole")
    running = start(raw, tmp_path / "out")
    time.sleep(whole * moment)
    os.kill(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=30)
    if running.returncode:
        assert running.returncode == 130, err.decode()
        assert err.decode().splitlines()[-1] == "manyhands: interrupted; nothing was left half-made"
        assert b"Traceback" not in err
    if (tmp_path / "out").exists():  # it came after the last rename
        manyhands.open_dataset(tmp_path / "out").verify()
    assert {path.name for path in tmp_path.iterdir()} <= {"whole", "out"}


def test_two_runs_to_one_place(raw: Path, tmp_path: Path) -> None:
    """A run that is alive keeps its folder; whoever comes last is told."""
    runs = [start(raw, tmp_path / "out") for _ in range(2)]
    errors = [run.communicate(timeout=60)[1].decode() for run in runs]
    assert sorted(run.returncode for run in runs) == [0, 2], errors
    manyhands.open_dataset(tmp_path / "out").verify()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
