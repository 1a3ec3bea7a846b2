"""A Spark cluster on the loopback address: a master and workers, as processes of their own; work for it."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import manyhands
from manyhands.engines.spark import find_java

EXECUTOR = b"CoarseGrainedExecutorBackend"
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a JVM that lives for seconds should not optimise itself
QUICK = (f"spark.executor.extraJavaOptions={LIGHT}", f"spark.driver.extraJavaOptions={LIGHT}")


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[str]:
    """The address of the master, once all workers have joined."""
    find_java()
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    program = str(spark_home() / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    master = [program, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    worker = [program, f"{deploy}.worker.Worker", "--host", "127.0.0.1", "-c", "1", "-m", "1g"]
    worker += ["--work-dir", str(folder), "--webui-port", "0", address]
    started = []
    try:
        started.append(_start([*master, "--webui-port", "0"], folder / "master.log"))
        _wait_for(folder / "master.log", "I have been elected leader", 1)
        started += [_start(worker, folder / f"worker{k}.log") for k in range(workers)]
        _wait_for(folder / "master.log", "Registering worker", workers)
        yield address
    finally:
        for process in started:
            process.kill()
            process.wait()


def executors() -> list[int]:
    """The processes of all executors on this machine that this test has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if EXECUTOR in path.read_bytes() and _is_ours(int(path.parent.name)):
                found.append(int(path.parent.name))
        except OSError:
            continue  # it has just ended
    return found


def kill_an_executor() -> None:
    os.kill(min(executors()), signal.SIGKILL)


def _is_ours(process: int) -> bool:
    """Whether it comes, over its worker, from this test."""
    while process > 1:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        if process == os.getpid():
            return True
    return False


def _start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": LIGHT,
    }
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env=environment)


def _wait_for(log: Path, text: str, times: int) -> None:
    for _ in range(600):
        if log.read_text(errors="replace").count(text) >= times:
            return
        time.sleep(0.1)
    raise AssertionError(log.read_text(errors="replace")[-2000:])


def messy(count: int, seed: int) -> list[str]:
    """Lines of reviews, among them broken, empty and repeated ones, and texts of many scripts."""
    draw = random.Random(seed)
    words = ["good", "bad", "not", "naïve", "плохо", "良い", "<br />", "don't", "5/5", "😀"]
    words += [f"word{n}" for n in range(300)]
    lines = []
    for n in range(count):
        text = " ".join(draw.choices(words, k=draw.randint(1, 25))) if n % 5 else f"again {n % 35}"
        line = json.dumps({"reviewText": text, "overall": float(draw.randint(1, 5))}, ensure_ascii=n % 2 == 0)
        lines.append({50: "{broken", 51: "", 52: '{"overall": 2}', 53: '{"reviewText": " ", "overall": 1}'}
                     .get(n % 100, line))  # fmt: skip
    return lines


def same(one: manyhands.Dataset, two: manyhands.Dataset) -> None:
    """Byte for byte, every file."""
    names = sorted(path.name for path in one.folder.iterdir())
    assert names == sorted(path.name for path in two.folder.iterdir())
    for name in names:
        assert (one.folder / name).read_bytes() == (two.folder / name).read_bytes(), name


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
