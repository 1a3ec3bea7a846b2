"""Micro-batching: who is scored with whom, and who is told to come back."""

import asyncio
import threading
import time

import numpy as np
import pytest

from manyhands.serve.answers import Refusal
from manyhands.serve.batching import SHORT_SECONDS, Batcher
from manyhands.serve.metrics import Metrics
from manyhands.serve.settings import LimitSettings


class Model:
    """Scores a text by its length, and remembers the calls."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.calls: list[int] = []
        self.threads: set[threading.Thread] = set()
        self._seconds = seconds

    def __call__(self, texts: list[str]) -> np.ndarray:
        self.calls.append(len(texts))
        self.threads.add(threading.current_thread())
        time.sleep(self._seconds)
        if "bad" in texts:
            raise ValueError("a bad text")
        return np.array([[len(text)] for text in texts], np.float32)


def batcher(model: Model, seconds_per_character: float = 0.0, **limits: object) -> Batcher:
    return Batcher(model, LimitSettings(**limits), Metrics(), seconds_per_character)


def test_requests_that_come_together_are_scored_together_within_the_limit() -> None:
    model = Model()

    async def run() -> list[np.ndarray]:
        queue = batcher(model, batch_texts=8)
        return await asyncio.gather(*(queue.scores(["x" * n, "y"]) for n in range(10)))

    found = asyncio.run(run())
    assert [scores.tolist() for scores in found] == [[[n], [1]] for n in range(10)]
    assert model.calls == [8, 8, 4]


def test_a_single_request_is_scored_at_once_in_the_same_thread() -> None:
    model = Model()

    async def run() -> int:
        queue = batcher(model)
        waiting = asyncio.ensure_future(queue.scores(["hello"]))
        turns = 0
        while not waiting.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(run()) <= 4  # turns of the loop: no timer is waited for
    assert model.threads == {threading.main_thread()}


def test_a_request_that_is_alone_is_scored_where_it_stands() -> None:
    model = Model()

    async def run() -> np.ndarray:
        asked = batcher(model).scores(["hello"], alone=True)
        with pytest.raises(StopIteration) as ended:
            asked.send(None)  # to its end, without a turn of the loop
        long = batcher(model, seconds_per_character=SHORT_SECONDS).scores(["hello"], alone=True)
        return np.concatenate([ended.value.value, await long])

    assert asyncio.run(run()).tolist() == [[5], [5]]
    assert len(model.threads) == 2, "a long call leaves the loop free"


def test_a_large_request_is_cut_to_the_limit() -> None:
    model = Model()
    texts = ["x" * (n % 50) for n in range(1000)]

    async def run() -> np.ndarray:
        return await batcher(model, batch_texts=64).scores(texts)

    assert asyncio.run(run())[:, 0].tolist() == [len(text) for text in texts]
    assert max(model.calls) == 64 and sum(model.calls) == 1000


def test_long_calls_leave_the_loop_free() -> None:
    model = Model(seconds=0.2)

    async def run() -> int:
        queue = batcher(model, seconds_per_character=SHORT_SECONDS)
        waiting = [asyncio.ensure_future(queue.scores(["hello", "you"])) for _ in range(2)]
        turns = 0
        while not all(one.done() for one in waiting):
            await asyncio.sleep(0.005)
            turns += 1
        return turns

    assert asyncio.run(run()) > 5
    assert threading.main_thread() not in model.threads
    assert model.calls == [4]


def test_who_has_waited_too_long_is_told_when_to_come_back() -> None:
    model = Model(seconds=0.3)

    async def run() -> list[object]:
        queue = batcher(model, seconds_per_character=1.0, queue_seconds=0.1, batch_texts=1)
        pieces = [asyncio.ensure_future(queue.scores(["x"])) for _ in range(3)]
        return await asyncio.gather(*pieces, return_exceptions=True)

    first, second, third = asyncio.run(run())
    assert isinstance(first, np.ndarray)
    for refused in (second, third):
        assert isinstance(refused, Refusal) and refused.status == 503
        assert dict(refused.headers)[b"retry-after"] in (b"1", b"2")
    assert model.calls == [1]


def test_an_error_reaches_all_who_shared_the_call_and_nobody_after_them() -> None:
    model = Model()

    async def run() -> list[object]:
        queue = batcher(model)
        failed = await asyncio.gather(queue.scores(["bad"]), queue.scores(["x"]), return_exceptions=True)
        return [*failed, await queue.scores(["four"])]

    first, second, third = asyncio.run(run())
    assert isinstance(first, ValueError) and isinstance(second, ValueError)
    assert isinstance(third, np.ndarray) and third.tolist() == [[4]]


def test_a_queue_that_is_retired_finishes_what_it_has() -> None:
    model = Model(seconds=0.05)

    async def run() -> np.ndarray:
        queue = batcher(model, seconds_per_character=1.0)
        waiting = asyncio.ensure_future(queue.scores(["hello"]))
        await asyncio.sleep(0.01)
        queue.retire()
        return await waiting

    assert asyncio.run(run()).tolist() == [[5]]


@pytest.mark.parametrize("bad", [{"batch_texts": 0}, {"queue_seconds": 0}, {"max_requests": -1}])
def test_limits_have_limits(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        LimitSettings(**bad)
