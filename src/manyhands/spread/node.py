"""The workers of one machine: memory that they share, and sockets by which they wait for each other.

The first of them leads. The others connect to it, and are given the memory as open files that have no name
anywhere: when the last worker ends, in whatever way, they are gone. Every call is made by all, in the same
order. Whoever has ended closes its socket, so that the others learn of it at once; whoever is silent for too
long is named.
"""

import mmap
import os
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.errors import ManyhandsError

Numbers = npt.NDArray[Any]
# Adds up over machines, in place; tells and is told whether anyone was asked to stop.
Between = Callable[[Numbers, bool], bool]

SLOT_BYTES = 1 << 22  # of what a worker tells the others at once; more goes in several parts
BANKS = 2  # one can be filled while the other is still being read
GO, STOP, LOST = b"\0", b"\1", b"\2"
CONNECT_SECONDS, GREETING_SECONDS = 0.02, 10.0
LONGEST_REASON = 1 << 12
WHO = struct.Struct("<iq")  # the worker's place on this machine, and its process
CREDENTIALS = struct.Struct("3i")
HELD_BACK_SECONDS = 10.0  # the leader has so much longer to say whom it waited for


class LostWorkerError(ManyhandsError):
    """Some worker does not answer; whoever started the crew may start it again."""


def can_share() -> bool:
    """Whether processes of this system can share memory that has no name."""
    return hasattr(os, "memfd_create") and hasattr(socket, "send_fds")


class Node:
    """One worker's place among those of its machine. ``first_rank`` is the leader's, in the whole crew."""

    def __init__(self, rank: int, size: int, first_rank: int) -> None:
        self.rank, self.size, self._first_rank = rank, size, first_rank
        self._links: dict[int, socket.socket] = {}  # of the leader: to all; of the others: to the leader
        self._processes = {rank: os.getpid()}
        self._slots = np.zeros((BANKS, 1, SLOT_BYTES if size == 1 else 0), np.uint8)
        self._steps = np.zeros(size, np.int64)
        self._bank = 0

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def own_name(self) -> str:
        return self._name(self.rank)

    def connect(self, name: str, seconds: float) -> None:
        """Meet the others; ``name`` is that of this crew on this machine, in this attempt."""
        if self.size > 1:
            address = f"\0manyhands-{os.getuid()}-{name}"  # in no folder: there is nothing to clean up
            self._wait_for_others(address, seconds) if self.leads else self._find_leader(address, seconds)
        self.wait_at_most(seconds)
        slots = self.zeros((BANKS, self.size, SLOT_BYTES), np.uint8) if self.size > 1 else self._slots
        self._steps = self.zeros((self.size,), np.int64)
        self._slots = slots

    def _wait_for_others(self, address: str, seconds: float) -> None:
        ends = time.monotonic() + seconds
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            try:
                listener.bind(address)
            except OSError:  # a crew that begins again has another name
                raise LostWorkerError("the place where workers of this machine meet is taken") from None
            listener.listen(self.size)
            while len(self._links) < self.size - 1:
                listener.settimeout(max(ends - time.monotonic(), 0.001))
                try:
                    link, _ = listener.accept()
                except TimeoutError:
                    missing = next(n for n in range(1, self.size) if n not in self._links)
                    raise LostWorkerError(f"{self._name(missing)} has not come") from None
                worker = self._greet(link)
                if worker is None:
                    link.close()
                else:
                    self._links[worker] = link

    def _greet(self, link: socket.socket) -> int | None:
        """Which worker is at the other end; None for a stranger, who is sent away."""
        link.settimeout(GREETING_SECONDS)
        if not _is_ours(link):
            return None
        with suppress(OSError, EOFError):
            worker, process = WHO.unpack(_receive(link, WHO.size))
            if 0 < worker < self.size:
                self._processes[worker] = process
                return int(worker)
        return None

    def _find_leader(self, address: str, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while True:
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with suppress(OSError):  # it may not listen yet
                link.connect(address)
                if _is_ours(link):
                    break
            link.close()
            if time.monotonic() > ends:
                raise LostWorkerError(f"{self._name(0)} has not come")
            time.sleep(CONNECT_SECONDS)
        link.sendall(WHO.pack(self.rank, os.getpid()))
        self._links[0] = link

    def wait_at_most(self, seconds: float) -> None:
        """How long to wait from now on; the leader, who knows whom it waits for, gives up first."""
        for link in self._links.values():
            link.settimeout(seconds if self.leads else 2 * seconds + HELD_BACK_SECONDS)

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links = {}

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Numbers:
        """An array that all workers of this machine see; it lies at the beginning of a page."""
        size = max(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize, 1)
        if self.size == 1:
            return np.frombuffer(mmap.mmap(-1, size), dtype, int(np.prod(shape))).reshape(shape)
        if self.leads:
            file = os.memfd_create("manyhands")
            os.ftruncate(file, size)
            for worker in self._links:
                self._talk(worker, lambda link: socket.send_fds(link, [GO], [file]))
        else:
            file = self._receive_file()
        try:
            # All pages at once: met one by one while rows are learnt, they would take longer.
            memory = mmap.mmap(file, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        finally:
            os.close(file)
        with suppress(OSError):  # not every system has large pages for memory that is shared
            memory.madvise(mmap.MADV_HUGEPAGE)
        return np.frombuffer(memory, dtype, int(np.prod(shape))).reshape(shape)

    def _receive_file(self) -> int:
        said, files, _, _ = self._talk(0, lambda link: socket.recv_fds(link, 1, 1))
        if said == LOST:
            raise self._told()
        if not files:
            raise self._lost(0, "has ended")
        return int(files[0])

    def meet(self, *, stop: bool = False) -> bool:
        """Wait for all workers of this machine; whether any of them was asked to stop."""
        if self.size == 1:
            return stop
        if not self.leads:
            self._talk(0, lambda link: link.sendall(STOP if stop else GO))
            said = self._talk(0, lambda link: _receive(link, 1))
            if said == LOST:
                raise self._told()
            return bool(said == STOP)
        for worker in sorted(self._links):
            stop |= self._talk(worker, lambda link: _receive(link, 1)) == STOP
        for worker in self._links:
            self._talk(worker, lambda link: link.sendall(STOP if stop else GO))
        return stop

    def sum(self, numbers: Numbers, between: Between | None = None, *, stop: bool = False) -> bool:
        """Add up over the machine and, by ``between``, over all machines, in place; as ``meet``."""
        if not numbers.flags.c_contiguous:
            raise ValueError("only contiguous numbers can be added up in place")
        flat = numbers.reshape(-1)
        if self.size == 1:
            return between(flat, stop) if between else stop
        most = SLOT_BYTES // flat.itemsize
        for start in range(0, max(len(flat), 1), most):
            stop = self._sum_part(flat[start : start + most], between, stop)
        return stop

    def _sum_part(self, part: Numbers, between: Between | None, stop: bool) -> bool:
        self._bank = (self._bank + 1) % BANKS
        slots = self._slots[self._bank].view(part.dtype)[:, : len(part)]
        slots[self.rank] = part
        stop = self.meet(stop=stop)
        # Everyone adds up a part of the numbers, always in the same order: all get the same bits.
        first, last = (len(part) * n // self.size for n in (self.rank, self.rank + 1))
        for other in range(1, self.size):
            slots[0, first:last] += slots[other, first:last]
        self.meet()
        if between:
            if self.leads:
                stop = between(slots[0], stop)
            stop = self.meet(stop=stop)
        part[...] = slots[0]
        return stop

    def beat(self, step: int) -> None:
        """Say how far this worker has come."""
        self._steps[self.rank] = step

    def tell_others(self, reason: str) -> None:
        """Let the others of this machine say the same of why the crew ends."""
        text = reason.encode()[:LONGEST_REASON]
        for link in self._links.values() if self.leads else ():
            with suppress(OSError):
                link.sendall(LOST + text + b"\n")

    def _last_words(self) -> LostWorkerError:
        """Of a leader that has ended: it may have said why."""
        with suppress(OSError):
            if self._links[0].recv(1) == LOST:
                return self._told()
        return self._lost(0, "has ended")

    def _told(self) -> LostWorkerError:
        """What the leader says of whom it has lost, behind the byte that announces it."""
        with suppress(OSError, UnicodeDecodeError):
            text = self._links[0].recv(LONGEST_REASON + 1)
            return LostWorkerError(text.decode().strip())
        return self._lost(0, "has ended")

    def _talk(self, worker: int, do: Callable[[socket.socket], Any]) -> Any:
        try:
            return do(self._links[worker])
        except TimeoutError:
            error = self._lost(worker, "does not answer")
        except (OSError, EOFError):
            error = self._lost(worker, "has ended") if self.leads else self._last_words()
        self.tell_others(str(error))
        raise error

    def _lost(self, worker: int, what: str) -> LostWorkerError:
        step = int(self._steps[worker])
        return LostWorkerError(f"{self._name(worker)} {what}, after step {step:,} or a little later")

    def _name(self, worker: int) -> str:
        process = self._processes.get(worker)
        who = f"worker {self._first_rank + worker} on {socket.gethostname()}"
        return f"{who} (process {process})" if process else who


def _is_ours(link: socket.socket) -> bool:
    """Whether the same user is at the other end: anyone on this machine may use the name of a socket."""
    theirs = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return bool(CREDENTIALS.unpack(theirs)[1] == os.getuid())


def _receive(link: socket.socket, size: int) -> bytes:
    """So many bytes, which come together."""
    said = link.recv(size, socket.MSG_WAITALL)
    if len(said) < size:
        raise EOFError
    return said
