"""What Amazon SageMaker asks of a container that serves a model: ``/ping`` and ``/invocations``."""

import csv
import io
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import to_json

from manyhands.serve import schemas
from manyhands.serve.answers import JSON, Answer, Refusal, as_json
from manyhands.serve.api import CANNOT, health
from manyhands.serve.requests import Request, Route, content_type

CSV, JSON_LINES = "text/csv", "application/jsonlines"
SAME = {"application/x-jsonlines": JSON_LINES, "application/x-ndjson": JSON_LINES}
Found = list[tuple[list[str], list[float]]]


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)
    text: str


_LINE: TypeAdapter[_Line | str] = TypeAdapter(_Line | str)


async def ping(request: Request) -> Answer:
    """Tell whether the container takes requests."""
    return await health(request)


async def invocations(request: Request) -> Answer:
    """Predict the labels of texts in JSON, CSV or JSON lines."""
    given = content_type(request)
    given = SAME.get(given, given)
    if given not in READERS:
        raise Refusal(415, f"the body is {given[:80]}; send one of {', '.join(READERS)}")
    write = WRITERS[_accepted(request, given)]
    texts, top = READERS[given](request)
    if not texts:
        raise Refusal(422, "the body has no texts")
    scores = await request.scores(texts)
    return write(request.model.likeliest(scores, top))


def _accepted(request: Request, given: str) -> str:
    """The first of the formats that the client likes best; that of the request if it takes any."""
    asked = request.headers.get(b"accept", b"").decode("latin-1").lower()
    wanted = sorted(
        (_preference(part) for part in asked.split(",") if part.strip()), key=lambda pair: -pair[1]
    )
    for asked_name, quality in wanted or [("*/*", 1.0)]:
        name = SAME.get(asked_name, asked_name)
        if quality > 0 and name in WRITERS:
            return name
        if quality > 0 and name in ("*/*", f"{given.split('/', maxsplit=1)[0]}/*"):
            return given
    raise Refusal(406, f"answers come as {', '.join(WRITERS)}, and the request accepts none of them")


def _preference(part: str) -> tuple[str, float]:
    """A format and how much it is liked.

    >>> _preference("text/csv;q=0.5"), _preference(" application/json ")
    (('text/csv', 0.5), ('application/json', 1.0))
    """
    name, *parameters = (piece.strip() for piece in part.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return name, float(parameter[2:])
            except ValueError:
                return name, 0.0
    return name, 1.0


def _text_of(request: Request) -> str:
    try:
        return request.body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the body is not valid UTF-8 (at byte {error.start:,})") from None


def _read_json(request: Request) -> tuple[list[str], int]:
    asked = request.parsed(schemas.PredictRequest)
    return asked.texts, asked.top


def _read_csv(request: Request) -> tuple[list[str], int]:
    """The first column of each row; a blank line is an empty text, so that answers stay in step."""
    try:
        rows = list(csv.reader(io.StringIO(_text_of(request), newline="")))
    except csv.Error as error:
        raise Refusal(422, f"the body is not valid CSV ({error})") from None
    return [row[0] if row else "" for row in rows], 1


def _read_lines(request: Request) -> tuple[list[str], int]:
    texts = []
    for number, line in enumerate(_text_of(request).split("\n"), 1):
        if line.strip():
            try:
                found = _LINE.validate_json(line)
            except ValidationError:
                raise Refusal(422, f'line {number:,} is neither {{"text": …}} nor a JSON string') from None
            texts.append(found if isinstance(found, str) else found.text)
    return texts, 1


def _write_json(found: Found) -> Answer:
    return as_json({"predictions": [{"labels": labels, "scores": scores} for labels, scores in found]})


def _write_csv(found: Found) -> Answer:
    out = io.StringIO()
    rows = ([cell for pair in zip(*row, strict=True) for cell in pair] for row in found)
    csv.writer(out, lineterminator="\n").writerows(rows)
    return Answer(out.getvalue().encode(), f"{CSV}; charset=utf-8")


def _write_lines(found: Found) -> Answer:
    lines = (to_json({"labels": labels, "scores": scores}) + b"\n" for labels, scores in found)
    return Answer(b"".join(lines), JSON_LINES)


READERS: dict[str, Callable[[Request], tuple[list[str], int]]] = {
    JSON: _read_json,
    CSV: _read_csv,
    JSON_LINES: _read_lines,
}
WRITERS: dict[str, Callable[[Found], Answer]] = {JSON: _write_json, CSV: _write_csv, JSON_LINES: _write_lines}

_TEXT = {"type": "string"}

ROUTES = (
    Route("GET", "/ping", ping, schemas.Health, for_all=True, always=True),
    Route(
        "POST",
        "/invocations",
        invocations,
        {JSON: schemas.Predictions, CSV: _TEXT, JSON_LINES: _TEXT},
        {JSON: schemas.PredictRequest, CSV: _TEXT, JSON_LINES: _TEXT},
        refuses=(*CANNOT, 406, 415),
    ),
)
