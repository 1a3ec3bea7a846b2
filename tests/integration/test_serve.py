"""``manyhands serve`` as a real process: equal scores by every way, limits, drain, reload, broken clients."""

import csv
import gzip
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.broken_requests import closed_within, send_broken, slow_clients
from tests.conftest import SHARED_DATA, Outcome, reviews, write_jsonl
from tests.models.test_convert import by_onnx
from tests.services import Running, ask, running

from manyhands.bundle.bundle import open_bundle
from manyhands.bundle.convert import convert
from manyhands.run.train import train
from manyhands.serve.answers import JSON

REAL = SHARED_DATA / "reviews" / "amazon" / "Musical_Instruments_5.json.gz"
TRAINED_ON, JUDGED_ON = 2000, 1000
CLIENTS = 64
TOKEN = "a-token-of-many-letters"


def rows() -> list[tuple[str, float]]:
    """Real reviews where they are at hand."""
    if not REAL.is_file():
        return reviews(TRAINED_ON + JUDGED_ON)
    with gzip.open(REAL, "rt", encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    texts = [(row["reviewText"], row["overall"]) for row in found if row.get("reviewText")]
    return texts[: TRAINED_ON + JUDGED_ON]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [text for text, _ in rows()[TRAINED_ON:]]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve")
    raw = write_jsonl(folder / "reviews.jsonl", rows()[:TRAINED_ON])
    train(raw, folder / "run", threads=2, labels="stars", epochs=2)
    return folder / "run"


@pytest.fixture(scope="module")
def service(bundle: Path) -> Iterator[Running]:
    with running(bundle) as found:
        yield found


def test_the_same_scores_by_every_way(
    service: Running, bundle: Path, texts: list[str], manyhands: Callable[..., Outcome], tmp_path: Path
) -> None:
    assert len(texts) == JUDGED_ON
    opened = open_bundle(bundle)
    expected = opened.predict(texts)
    labels, scores = [row[0][0] for row in expected], np.array([row[0][1] for row in expected])
    raw = write_jsonl(tmp_path / "texts.jsonl", [(text, 1.0) for text in texts])
    printed = [json.loads(line) for line in manyhands("predict", bundle, raw, "--json").out.splitlines()]
    ways: dict[str, tuple[list[str], list[float]]] = {
        "predict --json": ([row["labels"][0] for row in printed], [row["scores"][0] for row in printed])
    }
    for path in ("/predict", "/invocations"):
        found = service.ask("POST", path, {"texts": texts}, content_type=JSON).json()["predictions"]
        ways[path] = [row["labels"][0] for row in found], [row["scores"][0] for row in found]
    tensor = {"name": "texts", "shape": [len(texts)], "datatype": "BYTES", "data": texts}
    first, second = service.ask("POST", "/v2/models/run/infer", {"inputs": [tensor]}).json()["outputs"]
    ways["infer"] = first["data"], second["data"]
    body = io.StringIO()
    csv.writer(body).writerows([text] for text in texts)
    answer = service.ask("POST", "/invocations", body.getvalue().encode(), content_type="text/csv")
    table = list(csv.reader(io.StringIO(answer.body.decode())))
    ways["csv"] = [row[0] for row in table], [float(row[1]) for row in table]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    answer = service.ask("POST", "/invocations", lines, content_type="application/jsonlines")
    table = [json.loads(line) for line in answer.body.splitlines()]
    ways["lines"] = [row["labels"][0] for row in table], [row["scores"][0] for row in table]
    convert(opened, "onnx", str(tmp_path / "model.onnx"))
    by_label = by_onnx(tmp_path / "model.onnx", opened, texts)
    ways["onnx"] = [opened.labels[best] for best in by_label.argmax(1)], by_label.max(1).tolist()
    for way, (some_labels, some_scores) in ways.items():
        assert len(some_labels) == JUDGED_ON
        assert some_labels == labels, way
        assert np.abs(np.array(some_scores) - scores).max() <= 1e-5, way


def test_many_clients_get_their_own_answers(service: Running, bundle: Path, texts: list[str]) -> None:
    expected = [row[0] for row in open_bundle(bundle).predict(texts)]

    def client(number: int) -> int:
        connection, wrong = service.connect(), 0
        for place in range(number, 640, 16):
            row = ask(connection, "POST", "/predict", {"texts": [texts[place]]}).json()["predictions"][0]
            label, score = expected[place]
            wrong += row["labels"] != [label] or abs(row["scores"][0] - score) > 1e-5
        connection.close()
        return wrong

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(client, range(16))) == 0
    lines = service.ask("GET", "/metrics").body.decode()
    batched = re.search(r'batch_texts_bucket\{le="1"\} (\d+)', lines)
    calls = re.search(r"batch_texts_count (\d+)", lines)
    assert batched and calls and int(calls[1]) - int(batched[1]) > 10, "no texts were scored together"


def test_a_request_in_pieces_and_a_body_in_chunks(service: Running) -> None:
    connection = service.connect()
    chunks = (part for part in (b'{"texts"', b': ["gre', b'at soup"]}'))
    connection.request(
        "POST", "/predict", chunks, encode_chunked=True, headers={"Transfer-Encoding": "chunked"}
    )
    reply = connection.getresponse()
    assert reply.status == 200, reply.read()
    assert len(json.loads(reply.read())["predictions"]) == 1
    head = ask(connection, "HEAD", "/health")  # on the same connection, which stays in step
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "18")
    assert ask(connection, "GET", "/health").json() == {"status": "ready"}
    connection.close()


def test_limits_and_a_token(bundle: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    limits = (
        "--max-body-bytes",
        5000,
        "--max-texts",
        20,
        "--max-characters",
        200,
        "--max-connections",
        40,
        "--max-requests",
        9,
    )
    options = ("--token-file", token, "--request-seconds", 1, "--host", "0.0.0.0", "--name", "mine", *limits)
    with running(bundle, *options) as service:
        assert "is open to the network: whoever has the token who can reach it" in service.log
        assert service.ask("POST", "/predict", {"texts": ["a"]}).status == 401
        assert service.ask("GET", "/health").json() == {"status": "ready"}
        authorization = f"Bearer {TOKEN}"
        for body, status in [
            ({"texts": ["a"]}, 200),
            ({"texts": ["a"] * 21}, 422),
            ({"texts": ["a" * 201]}, 422),
            ({"texts": ["a" * 6000]}, 413),
        ]:
            assert service.ask("POST", "/predict", body, authorization=authorization).status == status
        assert service.ask("GET", "/v2/models/mine", authorization=authorization).json()["name"] == "mine"
        assert service.ask("GET", "/v2/models/run", authorization=authorization).status == 404
        # Slow clients lose their connections, and others are answered meanwhile.
        slow = slow_clients(service.port, 35)
        assert service.ask("POST", "/predict", {"texts": ["a"]}, authorization=authorization).status == 200
        crowd = slow_clients(service.port, 10)
        assert closed_within(crowd[-4:], 5) == 4  # more than may be open
        assert closed_within([*slow, *crowd[:-4]], 20) == 41
        assert service.ask("POST", "/predict", {"texts": ["a"]}, authorization=authorization).status == 200
        assert service.end() == 0


def test_sigterm_answers_all_that_was_taken(bundle: Path, texts: list[str]) -> None:
    with running(bundle, "--queue-seconds", 300, "--drain-seconds", 300) as service:
        connections = [service.connect() for _ in range(CLIENTS)]
        for connection in connections:
            connection.connect()
        body = json.dumps({"texts": texts[:200]}).encode()
        for connection in connections:
            connection.request("POST", "/predict", body)
        os.kill(service.process.pid, signal.SIGTERM)
        for connection in connections:
            reply = connection.getresponse()
            assert reply.status == 200
            assert len(json.loads(reply.read())["predictions"]) == 200
        assert service.process.wait(300) == 0
        assert "Traceback" not in service.log


def test_a_new_bundle_takes_over_under_load(bundle: Path, tmp_path: Path) -> None:
    """As a stream does it: a symbolic link is replaced; then a damaged bundle, which must be refused."""
    other = tmp_path / "other"
    raw = write_jsonl(
        tmp_path / "other.jsonl",
        [(f"great {n}", 5.0) for n in range(50)] + [(f"bad {n}", 1.0) for n in range(50)],
    )
    train(raw, other, threads=1, labels="polarity", epochs=1)
    damaged = tmp_path / "damaged"
    shutil.copytree(other, damaged)
    (damaged / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes()[:-5])
    live = tmp_path / "live"
    live.symlink_to(bundle)

    def show(target: Path) -> None:
        (tmp_path / "next").symlink_to(target)
        (tmp_path / "next").rename(live)

    with running(live, "--reload-seconds", 0.1) as service:
        stop, seen, failed = threading.Event(), set(), []

        def client() -> None:
            connection = service.connect()
            while not stop.is_set():
                try:
                    reply = ask(connection, "POST", "/predict", {"texts": ["great"], "top": 9})
                    if reply.status != 200:
                        failed.append(reply)
                    seen.add(len(reply.json()["predictions"][0]["labels"]))
                except Exception as error:
                    failed.append(error)
                    return

        clients = [threading.Thread(target=client) for _ in range(8)]
        for one in clients:
            one.start()
        before = service.ask("GET", "/model").json()["version"]
        show(other)
        service.wait_for(re.compile(r"live: version \w+ has taken over"))
        after = service.ask("GET", "/model").json()
        show(damaged)
        service.wait_for(re.compile(r"the new bundle is not taken, and the old one stays: .*damaged"))
        assert service.ask("GET", "/model").json() == after
        os.kill(service.process.pid, signal.SIGHUP)  # asks again, and is told again
        service.wait_for(re.compile(r"not taken.*not taken", re.DOTALL))
        show(bundle)
        service.wait_for(re.compile(rf"live: version {before} has taken over"))
        time.sleep(0.2)
        stop.set()
        for one in clients:
            one.join()
        assert failed == []
        assert seen == {5, 2}
        assert after["version"] != before and after["labels"] == ["negative", "positive"]
        metrics = service.ask("GET", "/metrics").body.decode()
        assert 'manyhands_reloads_total{outcome="taken"} 2' in metrics
        assert service.end() == 0


def usage(service: Running) -> tuple[int, int]:
    """Open files, and resident bytes."""
    folder = Path(f"/proc/{service.process.pid}")
    pages = int((folder / "statm").read_text().split()[1])
    return len(list((folder / "fd").iterdir())), pages * os.sysconf("SC_PAGE_SIZE")


def test_broken_requests_do_no_harm(service: Running) -> None:
    draw = random.Random(7)
    for _ in range(20):
        send_broken(service.port, draw)
    files, memory = usage(service)
    answers = [send_broken(service.port, draw) for _ in range(300)]
    assert not any(b"HTTP/1.1 5" in answer for answer in answers), "a fault of ours"
    assert sum(answer.startswith(b"HTTP/1.1 4") for answer in answers) > 80
    assert service.ask("POST", "/predict", {"texts": ["a"]}).status == 200
    until = time.monotonic() + 30
    while usage(service)[0] > files + 2 and time.monotonic() < until:
        time.sleep(0.2)
    assert usage(service)[0] <= files + 2, "connections stay open"
    assert usage(service)[1] < memory + (64 << 20)
    assert "Traceback" not in service.log, service.log


def test_requests_made_from_the_schema(service: Running) -> None:
    pytest.importorskip("schemathesis", reason="needs schemathesis")
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    command = ["run", f"http://127.0.0.1:{service.port}/openapi.json", "--checks", checks, "--seed", "1"]
    command += ["--phases", "coverage,fuzzing", "--max-examples", "5", "--max-time", "8", "--no-color"]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert "Traceback" not in service.log, service.log


def test_mistakes_of_whoever_starts_it(
    service: Running, bundle: Path, manyhands: Callable[..., Outcome], tmp_path: Path
) -> None:
    def told(*arguments: Any) -> tuple[int, str]:
        done = manyhands("serve", *arguments)
        assert done.out == ""
        return done.code, done.err.strip()

    code, why = told(bundle, "--port", service.port)
    assert (code, why) == (
        2,
        f"manyhands: cannot listen on 127.0.0.1, port {service.port}: Address already in use; "
        "choose another --host or --port",
    )
    code, why = told(tmp_path / "none")
    assert code == 3 and "none" in why
    code, why = told(bundle, "--token-file", "nowhere")
    assert (code, why) == (2, "manyhands: the token file nowhere cannot be read: No such file or directory")
    code, why = told(bundle, "--max-texts", 0)
    assert code == 2 and why.startswith("manyhands: --max-texts: Input should be greater than or equal to 1")
    code, why = told(bundle, "--name", "../x")
    assert code == 2 and why.startswith("manyhands: --name: String should match pattern")
