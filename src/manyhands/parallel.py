"""Work shared by threads: the kernels and engines below release the GIL, so threads are enough."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import cached_property
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_unordered(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[Result]:
    """Results as they come, in any order; never more than a few items are under way.

    An error, or the caller's leaving, drops the items that were not begun.
    """
    with ThreadPoolExecutor(threads) as pool:
        pending: set[Future[Result]] = set()
        try:
            for item in items:
                pending.add(pool.submit(function, item))
                if len(pending) > threads + 1:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        finally:
            for future in pending:
                future.cancel()


def map_ordered(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Results in the order of the items; a few are made ahead."""
    with ThreadPoolExecutor(threads) as pool:
        yield from map_in_pool(pool, function, items, threads + 1)


def map_in_pool(
    pool: ThreadPoolExecutor, function: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """Results in the order of the items, made by threads that others may use as well; so many ahead."""
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


class _OneThreadEach:
    """While anyone is inside, a matrix product uses the thread that asks for it and no other.

    The number of threads belongs to the whole process: who comes first changes it, who leaves last
    puts it back.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._limit: Any = None

    @cached_property
    def _engines(self) -> Any:
        from threadpoolctl import ThreadpoolController  # noqa: PLC0415

        return ThreadpoolController()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limit = self._engines.limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._limit is not None:
                self._limit.restore_original_limits()


one_thread_each = _OneThreadEach()
