"""Work shared by threads: the kernels and engines below release the GIL, so threads are enough."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
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


def in_order(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Results in the order of the items; a few are made ahead."""
    with ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[Result]] = deque()
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) > threads + 1:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
