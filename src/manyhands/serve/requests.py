"""A request as a handler sees it, and how its body is read and held against the limits."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pydantic import BaseModel, ValidationError

from manyhands.errors import ManyhandsError, UsageError
from manyhands.models.model import Scores
from manyhands.serve.answers import JSON, Answer, Refusal
from manyhands.serve.model import ServedModel

if TYPE_CHECKING:
    from manyhands.serve.service import Service

Asked = TypeVar("Asked", bound=BaseModel)
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Request:
    body: bytes
    headers: dict[bytes, bytes]
    model: ServedModel  # what is asked of one model is answered by it, even if another takes its place
    service: "Service"

    def parsed(self, kind: type[Asked]) -> Asked:
        try:
            return kind.model_validate_json(self.body)
        except ValidationError as error:
            raise _not_valid(error) from None

    def checked(self, texts: list[str], what: str = "texts") -> list[str]:
        """The texts, if they are neither too many nor too long."""
        limits = self.service.limits
        if len(texts) > limits.max_texts:
            why = f"{len(texts):,} {what} are too many for one request: send at most {limits.max_texts:,}"
            raise Refusal(422, why)
        longest = max(map(len, texts), default=0)
        if longest > limits.max_characters:
            why = f"one of the {what} has {longest:,} characters: send at most {limits.max_characters:,}"
            raise Refusal(422, why)
        return texts

    async def scores(self, texts: list[str]) -> Scores:
        """The probability of each label for each text."""
        return await self.model.scores(self.checked(texts), alone=self.service.has_one_request)

    async def aside(self, function: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
        """Call what takes its time in a thread of its own, so that others are answered meanwhile."""
        return await self.service.in_thread(partial(function, *arguments, **named))


def _not_valid(error: ValidationError) -> Refusal:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return Refusal(400, f"the body is not valid JSON ({first['msg'].removeprefix('Invalid JSON: ')})")
    where = ".".join(str(part)[:40] for part in first["loc"]) or "the body"
    return Refusal(422, f"{where}: {first['msg']}")


@dataclass(frozen=True)
class Route:
    """One path and method: what it takes, what it gives, and who answers it."""

    method: str
    path: str
    handle: Callable[[Request], Awaitable[Answer]]
    gives: type[BaseModel] | dict[str, Any]  # or by content type, a JSON schema each
    takes: type[BaseModel] | dict[str, Any] | None = None
    for_all: bool = False  # needs no token: it tells that the service is there, and nothing else
    always: bool = False  # however busy the service is
    refuses: tuple[int, ...] = ()  # beside what any route may refuse

    @property
    def summary(self) -> str:
        return (self.handle.__doc__ or "").strip().splitlines()[0]


def refusal_of(error: ManyhandsError) -> Refusal:
    """What the library says of a request. Wrong usage is asking a model for what it cannot do."""
    return Refusal(409 if isinstance(error, UsageError) else 422, str(error))


def content_type(request: Request) -> str:
    given = request.headers.get(b"content-type", JSON.encode())
    return given.split(b";")[0].strip().lower().decode("latin-1")
