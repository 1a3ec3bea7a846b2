"""Workers of one machine, as threads here: what they share, what they add up, and who does not come."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from manyhands.spread.node import SLOT_BYTES, LostWorkerError, Node, can_share

pytestmark = pytest.mark.skipif(not can_share(), reason="this system has no memory to share without a name")
PATIENCE = 60.0


def crew(size, work, first_rank=0):
    """What each of so many workers makes of ``work``, or the error that it ends with."""
    name = f"test-{os.getpid()}-{time.monotonic_ns()}"

    def one(rank):
        node = Node(rank, size, first_rank)
        try:
            node.connect(name, PATIENCE)
            return work(node)
        except LostWorkerError as error:
            node.tell_others(str(error))
            return error
        finally:
            node.close()

    with ThreadPoolExecutor(size) as workers:
        return list(workers.map(one, range(size)))


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 7, SLOT_BYTES // 4 + 3])
def test_sums_are_the_same_bits_for_all(size, count):
    numbers = [np.random.default_rng(rank).normal(size=count).astype(np.float32) for rank in range(size)]

    def work(node):
        found = []
        for _ in range(3):  # the same memory is used again
            mine = numbers[node.rank].copy()
            node.sum(mine)
            found.append(mine)
        return found

    everyone = [found for rounds in crew(size, work) for found in rounds]
    assert np.allclose(everyone[0], np.sum(numbers, axis=0), atol=1e-5)
    assert all(np.array_equal(everyone[0], found) for found in everyone)


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.float64])
def test_other_numbers_are_added_up_too(kind):
    def work(node):
        mine = np.full((3, 2), node.rank + 1, kind)
        node.sum(mine)
        return mine

    assert all((found == 1 + 2 + 3).all() and found.dtype == kind for found in crew(3, work))


def test_what_one_writes_all_see():
    def work(node):
        table = node.zeros((4, 3), np.float32)
        assert not table.any()
        node.meet()
        table[node.rank] = node.rank + 1
        node.meet()
        return table.sum(axis=1).tolist()

    assert crew(4, work) == [[3, 6, 9, 12]] * 4


def test_a_wish_to_stop_reaches_all_at_once():
    def work(node):
        return [node.meet(stop=node.rank == 2 and step == 1) for step in range(3)]

    assert crew(3, work) == [[False, True, False]] * 3


def test_machines_add_up_what_their_workers_have():
    def work(node):
        mine = np.ones(4, np.float32)
        stop = node.sum(mine, lambda numbers, stop: bool(numbers.__imul__(10).any()))  # as if others had more
        return mine.tolist(), stop

    assert crew(2, work) == [([20.0] * 4, True)] * 2


def test_who_ends_is_named_to_all():
    def work(node):
        node.beat(7)
        node.meet()
        if node.rank == 1:
            raise LostWorkerError("it ends")
        node.meet()

    errors = [str(error) for error in crew(3, work, first_rank=4)]
    assert errors[1] == "it ends"
    for said in (errors[0], errors[2]):
        assert said.startswith("worker 5 on ")
        assert "has ended, after step 7" in said


def test_who_is_silent_is_named():
    done = threading.Event()

    def work(node):
        node.wait_at_most(0.2)
        if node.rank == 1:
            done.wait(PATIENCE)
            return
        try:
            node.meet()
        finally:
            done.set()

    errors = crew(2, work)
    assert f"worker 1 on {os.uname().nodename} (process {os.getpid()}) does not answer" in str(errors[0])
