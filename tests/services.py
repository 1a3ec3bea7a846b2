"""A service in a process of its own, and clients of it, for tests and benchmarks."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 300  # until a service answers, on the busiest machine
ADDRESS = re.compile(r"is served at http://\S+:(\d+)$", re.MULTILINE)


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Running:
    """``manyhands serve`` on a free port."""

    def __init__(self, bundle: Path | str, *options: object) -> None:
        self._log = tempfile.NamedTemporaryFile("r", suffix=".log")  # noqa: SIM115 - as long as the process
        command = [sys.executable, "-m", "manyhands", "serve", bundle, "--port", 0, *options]
        with Path(self._log.name).open("w") as log:
            self.process = subprocess.Popen([*map(str, command)], stderr=log)
        self.port = int(self.wait_for(ADDRESS)[1])

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text()

    def wait_for(self, pattern: re.Pattern[str], seconds: float = SECONDS) -> re.Match[str]:
        """What the log says, sooner or later."""
        until = time.monotonic() + seconds
        while True:
            found = pattern.search(self.log)
            if found is not None:
                return found
            assert self.process.poll() is None, f"the service has ended: {self.log}"
            assert time.monotonic() < until, f"{pattern.pattern} is not in the log: {self.log}"
            time.sleep(0.05)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        connection = self.connect()
        try:
            return ask(connection, method, path, body, **headers)
        finally:
            connection.close()

    def end(self, number: int = signal.SIGTERM) -> int:
        """The exit code, after a signal."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        return self.process.wait(SECONDS)


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, **headers: str
) -> Reply:
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, data, named)
    reply = connection.getresponse()
    return Reply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())


@contextmanager
def running(bundle: Path | str, *options: object) -> Iterator[Running]:
    service = Running(bundle, *options)
    try:
        yield service
    finally:
        service.end(signal.SIGKILL)
