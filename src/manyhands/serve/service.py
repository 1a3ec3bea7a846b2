"""The state of a running service: which model it serves, what is under way, and who may ask."""

import asyncio
import hmac
import stat
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from manyhands.errors import UsageError
from manyhands.serve.answers import Refusal
from manyhands.serve.metrics import Metrics
from manyhands.serve.model import ServedModel
from manyhands.serve.settings import LimitSettings, ServeSettings

R = TypeVar("R")

LEAST_TOKEN_LETTERS = 16
ASIDE_THREADS = 2
CHALLENGE = (
    (b"www-authenticate", b"Bearer"),
    (b"www-authenticate", b'Basic realm="manyhands", charset="UTF-8"'),
)


class Service:
    def __init__(
        self,
        model: ServedModel,
        settings: ServeSettings,
        limits: LimitSettings,
        metrics: Metrics,
        token: bytes,
    ) -> None:
        self.model, self.settings, self.limits, self.metrics = model, settings, limits, metrics
        self.draining = False
        self.requests: Collection[object] = ()  # the server's, from their heads until they are answered
        self._token = token
        self._per_client: Counter[str] = Counter()
        self._threads = ThreadPoolExecutor(ASIDE_THREADS, "aside")
        self._maps: dict[str, asyncio.Task[bytes]] = {}

    def check_token(self, headers: dict[bytes, bytes]) -> None:
        """Programs send a bearer token; browsers ask their user for a password, and any name will do."""
        if not self._token:
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"basic":
            try:
                given = b64decode(given.strip(), validate=True).partition(b":")[2]
            except ValueError:
                given = b""
        elif scheme.lower() != b"bearer":
            given = b""
        if not hmac.compare_digest(given.strip(), self._token):
            why = "this service wants a token: send the header Authorization: Bearer TOKEN"
            raise Refusal(401, why, headers=CHALLENGE)

    @property
    def has_one_request(self) -> bool:
        return len(self.requests) == 1

    def enter(self, client: str) -> None:
        """Count a request in, unless too many are under way."""
        limits, metrics = self.limits, self.metrics
        if metrics.under_way >= limits.max_requests:
            why = f"{limits.max_requests:,} requests are under way, which is all that the service takes on"
            raise Refusal(503, why, max(1, round(self.model.batcher.wait_seconds())))
        if limits.max_requests_per_client:
            if self._per_client[client] >= limits.max_requests_per_client:
                why = f"{limits.max_requests_per_client:,} of your requests are under way; wait for one"
                raise Refusal(429, why, 1)
            self._per_client[client] += 1
        metrics.under_way += 1

    def leave(self, client: str) -> None:
        self.metrics.under_way -= 1
        if self.limits.max_requests_per_client:
            self._per_client[client] -= 1
            if not self._per_client[client]:
                del self._per_client[client]

    async def in_thread(self, function: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    async def word_map(self, model: ServedModel) -> bytes:
        """The map of a model's words, laid out when it is first asked for."""
        task = self._maps.get(model.version)
        if task is None or (task.done() and task.exception()):
            words = self.settings.map_words
            task = asyncio.ensure_future(self.in_thread(lambda: model.word_map(words)))
            self._maps = {model.version: task}  # that of another version is not asked for any more
        return await asyncio.shield(task)

    def replace(self, model: ServedModel) -> None:
        """From now on, new requests go to another model; those under way end where they began."""
        old, self.model = self.model, model
        old.batcher.retire()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.model.batcher.retire()


def read_token(path: str, warn: Callable[[str], None]) -> bytes:
    """The token in a file. It is worth nothing if all can read it."""
    try:
        token = Path(path).read_bytes().strip()
        mode = Path(path).stat().st_mode
    except OSError as error:
        raise UsageError(f"the token file {path} cannot be read: {error.strerror}") from None
    if len(token) < LEAST_TOKEN_LETTERS or not token.isascii() or b"\n" in token:
        least = f"at least {LEAST_TOKEN_LETTERS} ASCII characters"
        raise UsageError(f"{path} must hold one line of {least}; make it with: openssl rand -hex 32 > {path}")
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        warn(f"others on this machine can read {path}; forbid it with: chmod 600 {path}")
    return token
