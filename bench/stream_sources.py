"""Messages a second that each kind of stream hands over, with its server on the same machine.

All messages are there before reading begins. Each kind is read whole several times, by turns; the best
counts.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.brokers import Broker, Nats, Tansu, Valkey

from manyhands.catalog import STREAMS
from manyhands.data.streams.stream import open_stream
from measure import save

BROKERS: dict[str, type[Broker]] = {"kafka": Tansu, "redis": Valkey, "nats": Nats}
FILES = 20
LEAST_OF_A_FILE = 100_000


def write(kind: str, folder: Path, texts: list[bytes], brokers: dict[str, Broker]) -> str:
    """A stream that holds the texts; its URL."""
    if kind in BROKERS:
        broker = brokers[kind] = BROKERS[kind](folder / kind)
        broker.start()
        broker.create("reviews")
        broker.send("reviews", texts)
        return broker.url("reviews")
    if kind == "folder":
        (folder / "folder").mkdir()
        for k in range(FILES):
            part = texts[k * len(texts) // FILES : (k + 1) * len(texts) // FILES]
            (folder / "folder" / f"{k:03}.txt").write_bytes(b"".join(text + b"\n" for text in part))
        return str(folder / "folder")
    path = folder / "live.txt"
    path.write_bytes(b"".join(text + b"\n" for text in texts))
    return str(path) if kind == "file" else "-"


def rate(kind: str, url: str, folder: Path, count: int, batch: int) -> float:
    """Messages a second, the opening of the stream not counted."""
    writer = None
    if kind == "stdin":
        writer = subprocess.Popen(["cat", str(folder / "live.txt")], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        sys.stdin = writer.stdout  # type: ignore[assignment]
    stream = open_stream(url, None)
    left = count
    began = time.perf_counter()
    while left:
        found = stream.read(batch, 60.0)
        assert found is not None and found.texts, f"{kind}: {left} messages did not come"
        left -= len(found.texts)
    seconds = time.perf_counter() - began
    stream.close()
    if writer is not None:
        writer.wait()
    return count / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--length", type=int, default=100, help="bytes of a message")
    parser.add_argument("--batch", type=int, default=10_000, help="messages that are asked for at once")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    texts = [(b"message %d of a review, " % k).ljust(asked.length, b"x") for k in range(asked.messages)]
    brokers: dict[str, Broker] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        try:
            urls = {kind: write(kind, folder, texts, brokers) for kind in STREAMS}
            rounds = [
                {kind: rate(kind, url, folder, len(texts), asked.batch) for kind, url in urls.items()}
                for _ in range(asked.rounds)
            ]
        finally:
            for broker in brokers.values():
                broker.kill()
    best = {kind: max(found[kind] for found in rounds) for kind in STREAMS}
    for kind, found in best.items():
        print(f"{found:12,.0f} messages/s  {kind}")
    reached = best["file"] >= LEAST_OF_A_FILE
    print(f"{'reached' if reached else 'MISSED '}  at least {LEAST_OF_A_FILE:,} messages a second of a file")
    results = [{"kind": kind, "messages_per_second": round(found)} for kind, found in best.items()]
    bars = {f"at least {LEAST_OF_A_FILE:,} messages a second of a file": reached}
    save("stream_sources", {**vars(asked), "results": results, "bars": bars})


if __name__ == "__main__":
    main()
