"""The record of a model that learns from a stream, as other tools read it."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fsspec.core import url_to_fs

from manyhands.bundle.bundle import RECORD
from manyhands.data.streams.stream import describe
from manyhands.machine import examine
from manyhands.storage.versions import newest_version
from manyhands.streaming.job import StreamJob

if TYPE_CHECKING:
    from manyhands.streaming.stream import StreamState


def record_of(job: StreamJob, state: "StreamState", workers: int) -> dict[str, Any]:
    machine, seconds = examine(), max(state.seconds, 1e-9)
    return {
        "model": job.model,
        "spread": job.spread,
        "workers": workers,
        "examples_seen": state.ledger.learnt,
        "settings": job.chosen(),
        "data": {"fingerprint": describe(job.url), "rows": state.ledger.learnt, "tokens": state.words},
        "stream": {
            "url": describe(job.url),
            "ledger": asdict(state.ledger),
            "position": state.position,
            "blocks": state.blocks,
            "layout": None if state.layout is None else asdict(state.layout),
            "history": state.history.curve(),
            "drifts": state.drifts,
        },
        "seconds": round(state.seconds, 3),
        "learning_seconds": round(state.seconds, 3),
        "threads": job.threads,
        "rows_per_second": round(state.ledger.learnt / seconds, 1),
        "tokens_per_second": round(state.words / seconds, 1),
        "scores": {"stream": state.scores},
        "machine": {name: machine[name] for name in ("system", "cores", "memory_bytes")},
        "versions": {"manyhands": machine["manyhands"], "python": machine["python"]}
        | {p["name"]: p["version"] for p in machine["parts"] if p["version"] and not p["extra"]},
    }


def stream_record(path: str) -> dict[str, Any] | None:
    """The record of a model that a stream made; None if there is no such model."""
    version = newest_version(path) if "://" in path else None
    folder = f"{path.rstrip('/')}/{version.folder}" if version else path
    try:
        filesystem, file = url_to_fs(f"{folder}/{RECORD}")
        record = json.loads(filesystem.cat_file(file))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and "stream" in record else None
