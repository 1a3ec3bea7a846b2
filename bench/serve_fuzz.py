"""Requests made from the OpenAPI description by schemathesis, then broken ones on the socket.

What counts: no answer of 500 or above but the 503 of a full service, no hang, no traceback in the log, and no
growth: as many open files at the end as before, and resident memory within a few per cent.
"""

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.broken_requests import closed_within, send_broken, slow_clients
from tests.services import Running

from manyhands.run.train import train
from measure import PAGE_BYTES, save

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
COUNTED = re.compile(r'requests_total\{path="[^"]*",status="(\d+)"\} (\d+)')
SLOW = 100
REQUEST_SECONDS = 5


def counts(service: Running) -> dict[int, int]:
    """Requests answered so far, by status."""
    found: dict[int, int] = {}
    for status, count in COUNTED.findall(service.ask("GET", "/metrics").body.decode()):
        found[int(status)] = found.get(int(status), 0) + int(count)
    return found


def usage(service: Running) -> tuple[int, int]:
    folder = Path(f"/proc/{service.process.pid}")
    pages = int((folder / "statm").read_text().split()[1])
    return len(list((folder / "fd").iterdir())), pages * PAGE_BYTES


def from_schema(service: Running, requests: int) -> list[str]:
    """Run schemathesis with one seed after another until so many requests were answered; what it found."""
    complaints, seed, first = [], 0, sum(counts(service).values())
    while sum(counts(service).values()) - first < requests:
        seed += 1
        address = f"http://127.0.0.1:{service.port}/openapi.json"
        command = ["run", address, "--checks", CHECKS, "--seed", str(seed), "--no-color"]
        command += ["--phases", "coverage,fuzzing", "--max-examples", "100", "--request-timeout", "30"]
        done = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", *command], capture_output=True, text=True, check=False
        )
        if done.returncode:
            complaints.append(done.stdout[-3000:])
        print(f"seed {seed}: {sum(counts(service).values()) - first:,} requests so far", flush=True)
    return complaints


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--broken", type=int, default=2_000)
    parser.add_argument("--no-record", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [
            f"__label__{'good' if n % 2 else 'bad'} dish {n % 50} was {'fine' if n % 2 else 'foul'}"
            for n in range(400)
        ]
        (folder / "rows.txt").write_text("\n".join(lines) + "\n")
        train(folder / "rows.txt", folder / "run", format="labelled", model="fasttext", threads=1)
        service = Running(folder / "run", "--request-seconds", REQUEST_SECONDS)
        try:
            record = fuzz(service, chosen.requests, chosen.broken)
        finally:
            service.process.kill()
    print(record)
    if not chosen.no_record:
        save("serve_fuzz", record)


def fuzz(service: Running, requests: int, broken: int) -> dict[str, Any]:
    draw = random.Random(1)
    service.ask("GET", "/map")  # loads scikit-learn, which stays
    for _ in range(100):
        send_broken(service.port, draw)
    time.sleep(REQUEST_SECONDS + 2)
    before, files = counts(service), usage(service)
    complaints = from_schema(service, requests)
    after_schema, memory = counts(service), [files[1], usage(service)[1]]
    answers = [send_broken(service.port, draw) for _ in range(broken)]
    slow = slow_clients(service.port, SLOW)
    closed = closed_within(slow, 4 * REQUEST_SECONDS)
    time.sleep(REQUEST_SECONDS + 2)
    memory.append(usage(service)[1])
    after = counts(service)
    return {
        "requests": sum(after_schema.values()) - sum(before.values()),
        "complaints": complaints,
        "statuses": {str(status): count for status, count in sorted(after.items())},
        "broken": len(answers),
        "broken_answered": sum(answer.startswith(b"HTTP/1.1 ") for answer in answers),
        "broken_answered_5xx": sum(b"HTTP/1.1 5" in answer for answer in answers),
        "slow_clients": SLOW,
        "slow_clients_closed": closed,
        "open_files": [files[0], usage(service)[0]],
        "memory_bytes": memory,
        "tracebacks": service.log.count("Traceback"),
        "answers_afterwards": service.ask("POST", "/predict", {"texts": ["fine"]}).status,
        "exit_code": service.end(),
    }


if __name__ == "__main__":
    main()
