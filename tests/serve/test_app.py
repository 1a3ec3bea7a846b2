"""The application without a network: every route, what it refuses, and in which words."""

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manyhands.bundle.bundle import Bundle, open_bundle
from manyhands.bundle.explain import explain, word_parts
from manyhands.errors import InputError, UsageError
from manyhands.run.train import train
from manyhands.serve.app import App, all_routes
from manyhands.serve.metrics import Metrics
from manyhands.serve.model import open_model
from manyhands.serve.openapi import description
from manyhands.serve.service import Service, read_token
from manyhands.serve.settings import LimitSettings, ServeSettings
from tests.models.test_convert import WORDS, trained
from tests.services import Reply

TOKEN = b"0123456789abcdef"
Ask = Callable[..., Reply]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    trained(folder, 3)
    return folder / "run"


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    lines = [" ".join(WORDS[label].split() * 3) for label in WORDS for _ in range(60)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    train(folder / "text.txt", folder / "run", model="skipgram", dim=8, epochs=1, min_count=1, threads=1)
    return folder / "run"


def app_of(path: Path, token: bytes = b"", **limits: Any) -> App:
    metrics, chosen = Metrics(), LimitSettings(**limits)
    model = open_model(path, "toy", chosen, metrics)
    return App(Service(model, ServeSettings(map_words=12), chosen, metrics, token))


def ask(app: App, method: str, path: str, body: Any = None, **headers: str) -> Reply:
    """One request, whose body comes in two pieces."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    pieces = [data[: len(data) // 2], data[len(data) // 2 :]]
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        sent.append(message)

    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": named, "client": ("192.0.2.1", 9)}
    asyncio.run(app(scope, receive, send))
    start, rest = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Reply(start["status"], found, rest["body"])


def test_every_way_to_ask_for_labels_gives_what_python_gives(classifier: Path) -> None:
    app, texts = app_of(classifier), ["great fresh food", "rude, awful", "strange new green"]
    expected = open_bundle(classifier).predict(texts, top=2)
    found = ask(app, "POST", "/predict", {"texts": texts, "top": 2}).json()["predictions"]
    assert [[*zip(row["labels"], row["scores"], strict=True)] for row in found] == [
        [(label, pytest.approx(score, abs=1e-6)) for label, score in row] for row in expected
    ]
    tensor = {"name": "x", "shape": [3, 1], "datatype": "BYTES", "data": [[text] for text in texts]}
    asked = {"id": "7", "inputs": [tensor], "parameters": {"top": 2}, "outputs": [{"name": "probabilities"}]}
    inferred = ask(app, "POST", "/v2/models/toy/infer", asked).json()
    assert (inferred["id"], inferred["model_name"]) == ("7", "toy")
    (output,) = inferred["outputs"]
    assert (output["name"], output["shape"], output["datatype"]) == ("probabilities", [3, 2], "FP32")
    assert output["data"] == pytest.approx([score for row in expected for _, score in row], abs=1e-6)
    best = [row[0] for row in expected]
    as_csv = b'"great fresh food",unused\r\n"rude, awful"\r\nstrange new green'
    lines = ask(app, "POST", "/invocations", as_csv, content_type="text/csv").body.decode().splitlines()
    assert [line.split(",")[0] for line in lines] == [label for label, _ in best]
    as_lines = b'{"text": "great fresh food", "id": 1}\n"rude, awful"\n\n{"text": "strange new green"}\n'
    reply = ask(app, "POST", "/invocations", as_lines, content_type="application/jsonlines")
    rows = [json.loads(line) for line in reply.body.splitlines()]
    assert [row["labels"][0] for row in rows] == [label for label, _ in best]
    assert [row["scores"][0] for row in rows] == pytest.approx([score for _, score in best], abs=1e-6)


@pytest.mark.parametrize(
    ("accept", "given", "expected"),
    [
        ("", "text/csv", "text/csv"),
        ("*/*", "application/jsonlines", "application/jsonlines"),
        ("application/json", "text/csv", "application/json"),
        ("text/csv;q=0.2, application/json;q=0.9", "text/csv", "application/json"),
        ("application/x-jsonlines", "text/csv", "application/jsonlines"),
        ("image/png, */*;q=0.1", "text/csv", "text/csv"),
    ],
)
def test_sagemaker_answers_in_the_format_that_is_accepted(
    classifier: Path, accept: str, given: str, expected: str
) -> None:
    body = b'"great"\n'
    reply = ask(app_of(classifier), "POST", "/invocations", body, content_type=given, accept=accept)
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"].split(";")[0] == expected


REFUSED: list[tuple[str, str, Any, dict[str, str], int, str]] = [
    (
        "POST",
        "/predict",
        b"",
        {},
        400,
        "the body is not valid JSON (EOF while parsing a value at line 1 column 0)",
    ),
    ("POST", "/predict", b'{"texts": ["\xff"]}', {}, 400, "the body is not valid JSON"),
    ("POST", "/predict", b'{"texts": ["\\ud800"]}', {}, 400, "the body is not valid JSON"),
    ("POST", "/predict", {"texts": []}, {}, 422, "texts: List should have at least 1 item"),
    ("POST", "/predict", {"texts": "great"}, {}, 422, "texts: Input should be a valid array"),
    ("POST", "/predict", {"texts": [1]}, {}, 422, "texts.0: Input should be a valid string"),
    (
        "POST",
        "/predict",
        {"texts": ["a"], "top": 0},
        {},
        422,
        "top: Input should be greater than or equal to 1",
    ),
    ("POST", "/predict", {"texts": ["a"], "path": "/etc"}, {}, 422, "path: Extra inputs are not permitted"),
    (
        "POST",
        "/predict",
        {"texts": ["a"] * 6},
        {},
        422,
        "6 texts are too many for one request: send at most 5",
    ),
    (
        "POST",
        "/predict",
        {"texts": ["a" * 51]},
        {},
        422,
        "one of the texts has 51 characters: send at most 50",
    ),
    ("POST", "/predict", {"texts": ["a" * 990]}, {}, 413, "the body is larger than 1,000 bytes: send fewer"),
    (
        "POST",
        "/explain",
        {"text": "a", "label": "x"},
        {},
        422,
        "the model has no label 'x'; GET /model lists them",
    ),
    ("POST", "/nearest", {"words": ["a"]}, {}, 409, "ngrams models have no word vectors"),
    ("POST", "/analogy", {"first": "a", "second": "b", "third": "c"}, {}, 409, "ngrams models have no word"),
    ("POST", "/embed", {"words": ["a"]}, {}, 409, "ngrams models have no word vectors"),
    ("GET", "/map", None, {}, 409, "ngrams models have no word vectors"),
    ("GET", "/predict", None, {}, 405, "this path takes POST only"),
    ("DELETE", "/health", None, {}, 405, "this path takes HEAD, GET only"),
    (
        "GET",
        "/../etc/passwd",
        None,
        {},
        404,
        "there is nothing at this path; GET /openapi.json lists what there is",
    ),
    ("GET", "/v2/models/..%2f..", None, {}, 404, "there is no such model; the one here is toy"),
    ("POST", "/invocations", b"x", {"content_type": "image/png"}, 415, "the body is image/png; send one of"),
    (
        "POST",
        "/invocations",
        b"x",
        {"content_type": "text/csv", "accept": "image/png"},
        406,
        "answers come as",
    ),
    (
        "POST",
        "/invocations",
        b"\xff",
        {"content_type": "text/csv"},
        400,
        "the body is not valid UTF-8 (at byte 0)",
    ),
    ("POST", "/invocations", b"", {"content_type": "text/csv"}, 422, "the body has no texts"),
    ("POST", "/invocations", b'"a\n{', {"content_type": "application/jsonlines"}, 422, "line 1 is neither"),
]


@pytest.mark.parametrize(("method", "path", "body", "headers", "status", "why"), REFUSED)
def test_refusals_say_why(
    classifier: Path, method: str, path: str, body: Any, headers: dict[str, str], status: int, why: str
) -> None:
    app = app_of(classifier, max_texts=5, max_characters=50, max_body_bytes=1000)
    reply = ask(app, method, path, body, **headers)
    assert (reply.status, reply.json()["error"][: len(why)]) == (status, why)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"datatype": "FP32"}, "inputs.0.datatype must be BYTES, not FP32"),
        ({"shape": [2]}, "inputs.0 has 1 texts, and its shape says 2"),
        ({"data": [5]}, "inputs.0.data must be a list of one or more strings"),
        ({"data": [], "shape": [0]}, "inputs.0.data must be a list of one or more strings"),
    ],
)
def test_tensors_are_checked(classifier: Path, change: dict[str, Any], why: str) -> None:
    tensor = {"name": "x", "shape": [1], "datatype": "BYTES", "data": ["a"], **change}
    reply = ask(app_of(classifier), "POST", "/v2/models/toy/infer", {"inputs": [tensor]})
    assert (reply.status, reply.json()["error"]) == (422, why)


def test_too_many_requests_are_told_when_to_come_back(classifier: Path) -> None:
    app = app_of(classifier, max_requests=2, max_requests_per_client=1)
    asked = {"texts": ["great"]}
    app.service.enter("192.0.2.1")
    one = ask(app, "POST", "/predict", asked)
    assert (one.status, one.headers["retry-after"]) == (429, "1")
    assert one.json()["error"] == "1 of your requests are under way; wait for one"
    app.service.enter("192.0.2.2")
    two = ask(app, "POST", "/predict", asked)
    assert (two.status, two.headers["retry-after"]) == (503, "1")
    assert two.json()["error"] == "2 requests are under way, which is all that the service takes on"
    assert ask(app, "GET", "/health").status == 200  # however busy
    app.service.leave("192.0.2.1")
    app.service.leave("192.0.2.2")
    assert ask(app, "POST", "/predict", asked).status == 200
    assert app.service.metrics.under_way == 0


def test_a_token_opens_what_needs_one(classifier: Path) -> None:
    app, asked = app_of(classifier, TOKEN), {"texts": ["great"]}
    password = base64.b64encode(b"me:" + TOKEN).decode()
    for right in (f"Bearer {TOKEN.decode()}", f"bearer  {TOKEN.decode()}", f"Basic {password}"):
        assert ask(app, "POST", "/predict", asked, authorization=right).status == 200, right
    for wrong in (
        "",
        "Bearer",
        "Bearer 0123456789abcdeg",
        TOKEN.decode(),
        "Basic x",
        "Basic ====",
        "Bearer é",
    ):
        refused = ask(app, "POST", "/predict", asked, authorization=wrong)
        assert refused.status == 401, wrong
        assert "token" in refused.json()["error"]
        assert "Basic" in refused.headers["www-authenticate"]
    for route in all_routes("toy"):
        status = ask(app, route.method, route.path, b"{}").status
        assert (status == 401) == (not route.for_all), route.path
    free = {"/health", "/ping", "/v2/health/live", "/v2/health/ready", "/openapi.json"}
    assert {route.path for route in all_routes("toy") if route.for_all} == free


def test_token_files(tmp_path: Path) -> None:
    warned: list[str] = []
    file = tmp_path / "token"
    file.write_bytes(TOKEN + b"\n")
    file.chmod(0o644)
    assert read_token(str(file), warned.append) == TOKEN
    assert warned == [f"others on this machine can read {file}; forbid it with: chmod 600 {file}"]
    file.chmod(0o600)
    assert read_token(str(file), warned.append) == TOKEN and len(warned) == 1
    file.write_bytes(b"short\n")
    with pytest.raises(UsageError, match="at least 16 ASCII characters"):
        read_token(str(file), warned.append)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_token(str(tmp_path / "none"), warned.append)


def test_words(vectors: Path) -> None:
    app = app_of(vectors)
    facts = ask(app, "GET", "/model").json()
    assert (facts["can"], facts["labels"], facts["words"], facts["dim"]) == (["embed"], [], 12, 8)
    found = ask(app, "POST", "/nearest", {"words": ["great", "rude"], "top": 3}).json()["neighbours"]
    assert [row["word"] for row in found] == ["great", "rude"]
    assert all(len(row["nearest"]) == 3 for row in found)
    answers = ask(app, "POST", "/analogy", {"first": "great", "second": "fresh", "third": "rude"}).json()
    assert len(answers["answers"]) == 9 and not {"great", "fresh", "rude"} & {
        a["word"] for a in answers["answers"]
    }
    vector = ask(app, "POST", "/embed", {"words": ["great"]}).json()
    assert vector["dim"] == 8 and len(vector["vectors"][0]) == 8
    unknown = ask(app, "POST", "/nearest", {"words": ["grate"]})
    assert (unknown.status, unknown.json()["error"]) == (422, "'grate' is not among the 12 words of toy")
    cannot = ask(app, "POST", "/predict", {"texts": ["great"]})
    assert cannot.status == 409 and "skipgram models cannot predict labels" in cannot.json()["error"]
    drawn = ask(app, "GET", "/map")
    assert drawn.status == 200 and b"words on a plane" in drawn.body
    assert drawn.headers["content-security-policy"] == "frame-ancestors 'self'"


@pytest.mark.parametrize("model", ["ngrams", "fasttext", "lstm"])
def test_the_parts_of_the_words_add_up_to_the_score(model: str, tmp_path: Path) -> None:
    more = {"char_ngrams": "2-3"} if model == "fasttext" else {}
    bundle: Bundle = trained(tmp_path, 3, model=model, **more)
    for text in ("great food, the great / fresh place", "a / b", "rude " * 40, "zzyzx", ""):
        found = explain(bundle, text)
        parts = word_parts(bundle, text, found)
        assert [part.ngram for part in parts] == bundle.normaliser(text).split()
        assert found.bias + sum(part.part for part in parts) == pytest.approx(found.score, abs=1e-4), text


def test_the_description_holds_every_route(classifier: Path) -> None:
    app = app_of(classifier)
    described = ask(app, "GET", "/openapi.json").json()
    assert described == json.loads(json.dumps(description(all_routes("toy"))))
    for path in ("/predict", "/explain", "/v2/models/toy/infer", "/invocations"):
        answers = described["paths"][path]["post"]["responses"]
        assert {"200", "400", "401", "409", "413", "422", "429", "503"} <= answers.keys()
    names = [one["operationId"] for path in described["paths"].values() for one in path.values()]
    assert len(set(names)) == len(names)


def test_metrics_count_what_happened(classifier: Path) -> None:
    app = app_of(classifier)
    ask(app, "POST", "/predict", {"texts": ["great", "rude"]})
    ask(app, "POST", "/predict", b"{")
    ask(app, "GET", "/nowhere/a")
    ask(app, "GET", "/nowhere/b")
    lines = ask(app, "GET", "/metrics").body.decode().splitlines()
    assert 'manyhands_requests_total{path="/predict",status="200"} 1' in lines
    assert 'manyhands_requests_total{path="/predict",status="400"} 1' in lines
    assert 'manyhands_requests_total{path="elsewhere",status="404"} 2' in lines
    assert 'manyhands_batch_texts_bucket{le="1"} 0' in lines
    assert 'manyhands_batch_texts_bucket{le="2"} 1' in lines
    assert "manyhands_batch_texts_sum 2" in lines
    assert "manyhands_requests_under_way 0" in lines
    assert 'manyhands_request_seconds_count{path="/predict"} 2' in lines


def test_a_bug_is_told_without_its_details(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_of(classifier)
    monkeypatch.setattr(type(app.service), "enter", lambda *_: 1 / 0)
    reply = ask(app, "POST", "/predict", {"texts": ["great"]})
    assert (reply.status, reply.json()["error"]) == (
        500,
        "this is a bug in manyhands; its log has the details",
    )


def test_a_damaged_bundle_is_not_opened(classifier: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in classifier.iterdir():
        data = file.read_bytes()
        (copy / file.name).write_bytes(data[:-1] + b"\x07" if file.name == "model.safetensors" else data)
    with pytest.raises(InputError, match="damaged"):
        open_model(copy, "toy", LimitSettings(), Metrics())
