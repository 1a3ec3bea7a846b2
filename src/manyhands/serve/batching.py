"""Micro-batching: the texts of many requests in one call of the model.

Nobody waits for a batch to fill. A request that is alone is scored at once, where it stands; those that have
come in together, or while the model was at work, are scored together. So batches are as large as the load
makes them, and never larger than the limit.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from manyhands.models.model import Scores
from manyhands.serve.answers import Refusal
from manyhands.serve.metrics import Metrics
from manyhands.serve.settings import LimitSettings

Score = Callable[[list[str]], Scores]

# A call that is shorter than this is made in the loop's own thread: to hand it to another one costs more.
SHORT_SECONDS = 0.004
MOST_CHARACTERS = 1 << 20  # in one call, unless a single text is longer
TELLING_CHARACTERS = 4096  # what shorter calls take says little of the time a character takes
MEMORY = 0.9  # of the mean seconds a character


@dataclass(slots=True)
class _Piece:
    texts: list[str]
    characters: int
    scores: "asyncio.Future[Scores]"
    came: float


class Batcher:
    """The queue before one model."""

    def __init__(
        self, score: Score, limits: LimitSettings, metrics: Metrics, seconds_per_character: float
    ) -> None:
        self._score, self._limits, self._metrics = score, limits, metrics
        self._seconds_per_character = seconds_per_character
        self._queue: deque[_Piece] = deque()
        self._characters = 0  # in the queue
        self._busy = False  # a call is under way, or about to begin
        self._retired = False
        self._thread = ThreadPoolExecutor(1, "model")

    async def scores(self, texts: list[str], *, alone: bool = False) -> Scores:
        """The probability of each label for each text; ``alone``: no other request has come in with it."""
        most = self._limits.batch_texts
        if len(texts) <= most:
            if alone and not self._busy and self._is_short(_characters(texts)):
                return self._score_now(texts)
            return await self._add(texts)
        pieces = [self._add(texts[start : start + most]) for start in range(0, len(texts), most)]
        return np.concatenate(await asyncio.gather(*pieces))

    def retire(self) -> None:
        """No new requests will come; the thread ends with those that are there."""
        self._retired = True
        if not self._busy:
            self._thread.shutdown(wait=False)

    def wait_seconds(self) -> float:
        """How long it would take to score all that wait."""
        return self._characters * self._seconds_per_character

    def _score_now(self, texts: list[str]) -> Scores:
        """Without the queue: a future, and two turns of the loop, would take half as long as the model."""
        began = time.perf_counter()
        scores = self._score(texts)
        self._note(len(texts), _characters(texts), time.perf_counter() - began)
        return scores

    def _add(self, texts: list[str]) -> "asyncio.Future[Scores]":
        loop = asyncio.get_running_loop()
        piece = _Piece(texts, _characters(texts), loop.create_future(), time.monotonic())
        self._queue.append(piece)
        self._characters += piece.characters
        if not self._busy:
            self._busy = True
            loop.call_soon(self._call)  # after all requests that have come in with this one
        return piece.scores

    def _call(self) -> None:
        """Score what waits, up to the limit; then the next batch, if there is one."""
        batch = self._take()
        if not batch:
            self._rest()
            return
        loop = asyncio.get_running_loop()
        if self._is_short(sum(piece.characters for piece in batch)):
            self._finish(batch, _outcome(self._score, batch))
            if self._queue:
                loop.call_soon(self._call)  # not at once: others are to be read and answered in between
            else:
                self._rest()
            return
        running = loop.run_in_executor(self._thread, _outcome, self._score, batch)
        running.add_done_callback(lambda done: self._go_on(batch, done.result()))

    def _rest(self) -> None:
        self._busy = False
        if self._retired:
            self._thread.shutdown(wait=False)

    def _go_on(self, batch: list[_Piece], outcome: "_Outcome") -> None:
        self._finish(batch, outcome)
        self._call()

    def _is_short(self, characters: int) -> bool:
        return characters * self._seconds_per_character <= SHORT_SECONDS

    def _note(self, texts: int, characters: int, seconds: float) -> None:
        if characters >= TELLING_CHARACTERS:
            new = seconds / characters
            self._seconds_per_character = MEMORY * self._seconds_per_character + (1 - MEMORY) * new
        self._metrics.batch(texts, seconds)

    def _take(self) -> list[_Piece]:
        batch: list[_Piece] = []
        texts = characters = 0
        too_early = time.monotonic() - self._limits.queue_seconds
        while self._queue:
            piece = self._queue[0]
            over = texts + len(piece.texts) > self._limits.batch_texts
            if batch and (over or characters + piece.characters > MOST_CHARACTERS):
                break
            self._queue.popleft()
            self._characters -= piece.characters
            if piece.came < too_early:
                _refuse(piece, self.wait_seconds())
                continue
            batch.append(piece)
            texts += len(piece.texts)
            characters += piece.characters
        return batch

    def _finish(self, batch: list[_Piece], outcome: "_Outcome") -> None:
        texts, characters = (
            sum(len(piece.texts) for piece in batch),
            sum(piece.characters for piece in batch),
        )
        self._note(texts, characters, outcome.seconds)
        start = 0
        for piece in batch:
            end = start + len(piece.texts)
            if not piece.scores.done():  # nobody has given up
                if outcome.error is None:
                    piece.scores.set_result(outcome.scores[start:end])
                else:
                    piece.scores.set_exception(outcome.error)
            start = end


def _characters(texts: list[str]) -> int:
    return sum(map(len, texts))


def _refuse(piece: _Piece, wait_seconds: float) -> None:
    if not piece.scores.done():
        why = "the model is busy, and this request has waited as long as --queue-seconds allows"
        piece.scores.set_exception(Refusal(503, why, max(1, math.ceil(wait_seconds))))


@dataclass(slots=True)
class _Outcome:
    scores: Scores
    seconds: float
    error: Exception | None = None


def _outcome(score: Score, batch: list[_Piece]) -> _Outcome:
    """One call of the model; what goes wrong in it is told to those who asked."""
    began = time.perf_counter()
    texts = batch[0].texts if len(batch) == 1 else [text for piece in batch for text in piece.texts]
    try:
        return _Outcome(score(texts), time.perf_counter() - began)
    except Exception as error:
        return _Outcome(np.empty((0, 0), np.float32), time.perf_counter() - began, error)
