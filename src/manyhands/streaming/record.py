"""The record of a model that learns from a stream, as other tools read it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyhands.bundle.bundle import RECORD
from manyhands.data.streams.stream import describe
from manyhands.machine import examine
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
    file = Path(path) / RECORD
    try:
        record = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and "stream" in record else None
