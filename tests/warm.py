"""The command line without the seconds that its imports take.

``python -m tests.warm`` has imported the whole package and waits. For each call it forks a child, which then
does what ``python -m manyhands`` does. Tests that need a fresh interpreter start one.
"""

import atexit
import gc
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, NoReturn

ROOT = Path(__file__).parents[1]
LONGEST = 1 << 17  # bytes of a call: it is one packet


class Warm:
    """The server. It starts with the first call, and ends with the process that made it at the latest."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._calls: socket.socket

    def call(self, arguments: list[str], stdin: bytes, folder: Path, seconds: float) -> tuple[int, str, str]:
        """Exit code, output and errors."""
        if self._process is None:
            self._start()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            source, sink = os.pipe()
            threading.Thread(target=_feed, args=(sink, stdin), daemon=True).start()
            try:
                request = json.dumps([arguments, str(folder), dict(os.environ)]).encode()
                socket.send_fds(self._calls, [request], [source, out.fileno(), err.fileno()])
                self._calls.settimeout(seconds)
                code = int(self._calls.recv(100))
            except BaseException:  # also the test's own timeout: its answer must not be taken for the next
                self.close()
                raise
            finally:
                os.close(source)
            return code, _whole(out), _whole(err)

    def _start(self) -> None:
        self._calls, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # Pipes, as calls have them: what Python asks of its streams at the start stays true.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )

    def close(self) -> None:
        """End the server, and the call that it is at."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None
            self._calls.close()


def _feed(sink: int, data: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(sink, "wb") as file:
        file.write(data)


def _whole(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode()


def serve(calls: socket.socket) -> NoReturn:
    """Until the other end is closed, by whatever end of the process that has it."""
    import manyhands

    for module in pkgutil.walk_packages(manyhands.__path__, "manyhands."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    gc.freeze()  # no child need look through all this when it collects
    while True:
        request, streams, _, _ = socket.recv_fds(calls, LONGEST, 3)
        if not request:
            os._exit(0)
        # OpenBLAS and jemalloc see to their own threads when a process forks; nobody does to Python's.
        assert threading.active_count() == 1
        child = os.fork()
        if not child:
            calls.close()
            become(*json.loads(request), streams)
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(child, 0)
        calls.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(arguments: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> NoReturn:
    """``python -m manyhands``, to its end; only what was imported is not taken apart again."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[0] = folder
    sys.argv[1:] = arguments
    code = 0
    try:
        runpy.run_module("manyhands", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
