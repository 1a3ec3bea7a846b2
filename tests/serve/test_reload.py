"""Following a bundle in a store: what a stream uploads there takes over."""

import asyncio
import logging
from io import BytesIO
from pathlib import Path

import pytest

from manyhands.bundle.bundle import identity_of
from manyhands.serve.metrics import Metrics
from manyhands.serve.model import open_model
from manyhands.serve.reload import Follower
from manyhands.serve.service import Service
from manyhands.serve.settings import LimitSettings, ServeSettings
from manyhands.storage.versions import Versions
from tests.models.test_convert import trained


def follower_of(path: str, bundle: Path | str) -> tuple[Follower, Service]:
    limits, metrics = LimitSettings(), Metrics()
    model = open_model(bundle, "live", limits, metrics)
    service = Service(model, ServeSettings(reload_seconds=0.02), limits, metrics, b"")
    return Follower(path, service, identity_of(path) if bundle == path else None), service


def upload(versions: Versions, number: int, bundle: Path) -> None:
    files = {file.name: BytesIO(file.read_bytes()) for file in bundle.iterdir()}
    versions.add(f"snapshot-{number:012}", files)


def test_what_a_stream_uploads_takes_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    url = "memory://live"
    for labels in (2, 3):
        (tmp_path / str(labels)).mkdir()
        trained(tmp_path / str(labels), labels)
    (tmp_path / "here").mkdir()
    assert identity_of(url) is None
    versions = Versions(url, tmp_path / "here")
    upload(versions, 1, tmp_path / "2" / "run")

    async def run() -> list[int]:
        follower, service = follower_of(url, url)
        following = asyncio.create_task(follower.follow())
        await asyncio.sleep(0.1)
        first = service.model
        await asyncio.to_thread(upload, versions, 2, tmp_path / "3" / "run")
        while service.model is first:
            await asyncio.sleep(0.02)
        following.cancel()
        service.close()
        return [len(first.labels), len(service.model.labels)]

    assert asyncio.run(asyncio.wait_for(run(), 300)) == [2, 3]


def test_a_store_out_of_reach_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained(tmp_path, 2)
    follower, service = follower_of("nosuch://live", tmp_path / "run")
    with caplog.at_level(logging.WARNING, "manyhands.serve"):
        assert follower._look() is None and follower._look() is None
    (told,) = caplog.messages
    assert told.startswith("no new bundle is looked for until this works again: nosuch://live")
    service.close()
