"""Sudden ends: kill -9 and Ctrl-C at any moment leave no dataset or a whole one."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

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


def partial(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if ".partial-" in path.name}


def wait_for_work(running: subprocess.Popen[bytes], folder: Path, left: frozenset[str] = frozenset()) -> None:
    """Until it has begun to write, whatever others left: most of a short run is loading Python."""
    while partial(folder) <= left:
        assert running.poll() is None, running.communicate()
        time.sleep(0.002)


class Undisturbed(NamedTuple):
    manifest: bytes
    loading: float  # seconds until it begins to write
    seconds: float  # from then to the end


@pytest.fixture(scope="module")
def whole(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("whole")
    assert start(raw, folder / "first").wait(60) == 0  # after which all kernels are compiled
    began = time.monotonic()
    running = start(raw, folder / "out")
    wait_for_work(running, folder)
    writes = time.monotonic()
    assert running.wait(60) == 0
    manifest = (folder / "out" / "manifest.json").read_bytes()
    return Undisturbed(manifest, writes - began, time.monotonic() - writes)


def test_kill_at_random_moments(raw: Path, tmp_path: Path, whole: Undisturbed) -> None:
    draw = random.Random(7)
    out = tmp_path / "out"
    outcomes = {"none": 0, "whole": 0}
    leftovers = 0
    for attempt in range(6):
        left = frozenset(partial(tmp_path))
        running = start(raw, out)
        wait_for_work(running, tmp_path, left)
        time.sleep(whole.seconds * draw.uniform(0, 1))
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
        leftovers += bool(partial(tmp_path) - left)
        if out.exists():
            dataset = manyhands.open_dataset(out)
            dataset.verify()
            assert (out / "manifest.json").read_bytes() == whole.manifest, attempt
            outcomes["whole"] += 1
            shutil.rmtree(out)
        else:
            with pytest.raises(InputError):
                manyhands.open_dataset(out)
            outcomes["none"] += 1
    assert outcomes["none"] >= 3, outcomes
    assert leftovers >= 3, "a killed run cannot clean up after itself"
    assert start(raw, out).wait(60) == 0
    assert (out / "manifest.json").read_bytes() == whole.manifest
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "the next run did"


@pytest.mark.parametrize("moment", [-1, 0, 0.2, 0.5, 0.8])
def test_interrupt(raw: Path, tmp_path: Path, whole: Undisturbed, moment: float) -> None:
    """At a moment of the work; the first is before it, while Python loads."""
    running = start(raw, tmp_path / "out")
    if moment < 0:
        time.sleep(whole.loading * 0.7)
    else:
        wait_for_work(running, tmp_path)
        time.sleep(whole.seconds * moment)
    os.kill(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=500)
    if running.returncode or moment <= 0.2:
        assert running.returncode == 130, err.decode()
        assert err.decode().splitlines()[-1] == "manyhands: interrupted; no partial output was left behind"
        assert b"Traceback" not in err
    if (tmp_path / "out").exists():  # it came after the last rename
        manyhands.open_dataset(tmp_path / "out").verify()
    assert {path.name for path in tmp_path.iterdir()} <= {"out"}


def test_two_runs_to_one_place(raw: Path, tmp_path: Path) -> None:
    """A run that is alive keeps its folder; whoever comes last is told."""
    runs = [start(raw, tmp_path / "out") for _ in range(2)]
    errors = [run.communicate(timeout=500)[1].decode() for run in runs]
    assert sorted(run.returncode for run in runs) == [0, 2], errors
    manyhands.open_dataset(tmp_path / "out").verify()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
