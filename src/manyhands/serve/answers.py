"""What a request gets back: an answer, or a refusal that says why."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

JSON = "application/json"
Headers = Sequence[tuple[bytes, bytes]]
NO_SNIFFING = (b"x-content-type-options", b"nosniff")
NO_STORE = (b"cache-control", b"no-store")
# An extension of ASGI, by its name in a request's scope: its "send" sends an answer in one piece, if it can.
SEND_WHOLE = "manyhands.send_whole"


@dataclass(frozen=True, slots=True)
class Answer:
    body: bytes
    content_type: str = JSON
    status: int = 200
    headers: Headers = ()

    def all_headers(self) -> Headers:
        return [
            (b"content-type", self.content_type.encode()),
            (b"content-length", b"%d" % len(self.body)),
            NO_SNIFFING,
            NO_STORE,
            *self.headers,
        ]


class Refusal(Exception):  # noqa: N818 - an answer, and no fault of ours
    """Why a request is not served. ``retry_seconds`` says when it may come again."""

    def __init__(self, status: int, why: str, retry_seconds: int = 0, headers: Headers = ()) -> None:
        super().__init__(why)
        retry = [(b"retry-after", b"%d" % retry_seconds)] if retry_seconds else []
        self.status, self.headers = status, [*headers, *retry]

    def answer(self) -> Answer:
        return Answer(to_json({"error": str(self)}), JSON, self.status, self.headers)


def as_json(value: Any) -> Answer:
    return Answer(to_json(value))
