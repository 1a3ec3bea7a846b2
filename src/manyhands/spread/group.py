"""A crew's lines to each other: shared memory on a machine, PyTorch's process group between machines.

Of each machine one worker leads, and speaks for its machine with those of the others.
"""

import fcntl
import os
import re
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from manyhands.engines.crew import PLACE, RESTARTS, RUN, WHO, rank
from manyhands.engines.torchrun import local_address, open_store
from manyhands.errors import UsageError, missing_extra
from manyhands.spread.node import LostWorkerError, Node, can_share

Numbers = npt.NDArray[Any]

READY_SECONDS = 3600.0  # for reading the rows, which may take one worker longer than another
BEAT_SECONDS = 1.0
NAME_SECONDS = 10.0
ASK_ADDRESS = 0x8915  # the number of Linux for an interface's address


class Group:
    """Who this worker is, and what it can ask the others for.

    All calls are made by all workers, in the same order; those that say so, by all who lead a machine. One
    that does not come within ``stall_seconds`` is named in the error of the others. Where workers do not
    ``share`` memory, each is as if on a machine of its own.
    """

    def __init__(self, stall_seconds: float, *, share: bool = True) -> None:
        for name in WHO:
            if name not in os.environ:
                raise UsageError(f"{name} is not set: start the crew by torchrun, or with --workers")
        self.rank, self.size = rank(), int(os.environ["WORLD_SIZE"])
        here, beside, self.machine, self.machines = 0, 1, self.rank, self.size
        if share and can_share() and all(name in os.environ for name in PLACE):
            here, beside, self.machine, self.machines = (int(os.environ[name]) for name in PLACE)
        self._node, self._stall_seconds = Node(here, beside, self.rank - here), stall_seconds
        self._between = _Machines(self.machine, self.machines, stall_seconds) if self.machines > 1 else None
        self._stop_asked = False
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._handlers[number] = signal.signal(number, self._note_stop)
        if self._between and self.leads:
            self._between.open(self.rank)
        attempt = (os.environ.get(RUN, ""), os.environ["MASTER_PORT"], os.environ.get(RESTARTS, "0"))
        self._node.connect("-".join([*attempt, str(self.rank - self._node.rank)]), READY_SECONDS)
        return self

    def _note_stop(self, *_: Any) -> None:
        self.ask_to_stop()

    def ask_to_stop(self) -> None:
        """The others are told with the next sum."""
        self._stop_asked = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if isinstance(error, LostWorkerError):
            self._node.tell_others(str(error))
        self._node.close()
        if self._between and self.leads:
            self._between.close()

    @property
    def leads(self) -> bool:
        """Whether this worker speaks for its machine."""
        return self._node.leads

    @property
    def bytes(self) -> int:
        """What has gone to other machines."""
        return self._between.bytes if self._between else 0

    @property
    def seconds(self) -> float:
        """How long that has taken."""
        return self._between.seconds if self._between else 0.0

    def wait_for_all(self) -> None:
        """However long it takes, as the others may still read their rows."""
        if self._between and self.leads:
            self._between.join()
        self._node.meet()

    def be_strict(self) -> None:
        """From now on, whoever does not come within the time that was set is lost."""
        self._node.wait_at_most(self._stall_seconds)
        if self._between:
            self._between.patient = False

    def keeps_files(self, folder: Path | None) -> bool:
        """Whether this worker writes checkpoints: the first, and one where its files cannot be seen."""
        if folder is None or not self.leads:
            return False
        if self._between is None:
            return True
        return self._between.keeps_files(folder)

    def beat(self, step: int) -> None:
        """Say how far this worker has come, for those who may look for it."""
        self._node.beat(step)
        if self._between and self.leads:
            self._between.beat(step)

    def share_of_machine(self, rows: int) -> tuple[int, int]:
        """The part of so many rows that is this worker's among those of its machine: from where to where."""
        return rows * self._node.rank // self._node.size, rows * (self._node.rank + 1) // self._node.size

    def zeros(self, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """An array that all workers of this machine see."""
        return self._node.zeros(shape, np.float32)

    def meet(self) -> None:
        """Wait for the workers of this machine."""
        self._node.meet()

    def sum(self, numbers: Numbers) -> bool:
        """Add up over the crew, in place; also whether anyone was asked to stop."""
        between = self._between.sum if self._between else None
        return self._node.sum(numbers, between, stop=self._stop_asked)

    def add_up(self, numbers: Numbers) -> None:
        """Add up over machines, in place and in the numbers' own type; for those who lead."""
        if self._between:
            self._between.add_up(numbers)

    def add_halves(self, numbers: npt.NDArray[np.float32]) -> None:
        """The same, but only half of the bits travel: for moves, of which a little may be rounded away."""
        if self._between:
            self._between.add_halves(numbers)

    def same_for_machines(self, array: Numbers, worker: int) -> None:
        """Give those who lead a machine the numbers of one of them; for those who lead."""
        self._copy(array, worker, self.add_up)

    def same_for_all(self, array: Numbers, worker: int) -> None:
        """Give everyone the numbers of one worker."""
        self._copy(array, worker, self.sum)

    def _copy(self, array: Numbers, worker: int, add_up: Callable[[Numbers], Any]) -> None:
        message = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        message = message.copy() if worker == self.rank else np.zeros_like(message)
        add_up(message)
        array[...] = message.view(array.dtype).reshape(array.shape)

    def gather(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """What each worker has, a row each."""
        every = np.zeros((self.size, *numbers.shape), np.float64)
        every[self.rank] = numbers
        self.sum(every)
        return every

    def text_of(self, worker: int, text: str) -> str:
        """What one worker says, for all."""
        said = np.frombuffer(text.encode(), np.uint8)
        size = int(self.gather(np.array([len(said)], np.float64))[worker, 0])
        message = said.copy() if worker == self.rank else np.zeros(size, np.uint8)
        self.sum(message)
        return message.tobytes().decode()

    def name(self, worker: int) -> str:
        """A worker's name for people; asked for by all, since only its own machine knows it."""
        return self.text_of(worker, self._node.own_name)


class _Machines:
    """The lines between those who lead a machine."""

    def __init__(self, rank: int, size: int, stall_seconds: float) -> None:
        self._rank, self._size = rank, size
        self._stall = timedelta(seconds=stall_seconds)
        self.bytes, self.seconds = 0, 0.0
        self.patient, self._waits, self._beaten = True, 0, 0.0
        self._room: Any = None
        self._torch: Any = None
        self._dist: Any = None
        self._store: Any = None
        self._mark: Path | None = None

    def open(self, worker: int) -> None:
        """The group is made later, when all are there, so that no one's slow reading counts as silence."""
        self._torch, self._dist = _engine()
        _choose_interface(os.environ["MASTER_ADDR"])
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # then torchrun itself leads
        self._store = open_store(host, port, leads=worker == 0 and not agents, seconds=READY_SECONDS)
        self._store.set(
            f"who/{self._rank}", f"worker {worker} on {socket.gethostname()} (process {os.getpid()})"
        )

    def close(self) -> None:
        if self._mark and self._rank == 0:
            self._mark.unlink(missing_ok=True)
        if self._dist is not None and self._dist.is_initialized():
            with suppress(Exception):  # a group that lost someone cannot be closed in good order
                self._dist.destroy_process_group()

    def join(self) -> None:
        self._wait_for_all()
        try:
            self._dist.init_process_group(
                "gloo", store=self._store, rank=self._rank, world_size=self._size, timeout=self._stall
            )
        except RuntimeError as error:
            raise self._lost(error) from None
        if self._rank == 0 and self._mark:  # all have looked for it
            self._mark.unlink(missing_ok=True)

    def _wait_for_all(self) -> None:
        """By the store: the group itself would give up sooner."""
        self._waits += 1
        names = [f"ready/{self._waits}/{other}" for other in range(self._size)]
        self._store.set(names[self._rank], "1")
        try:
            self._store.wait(names, timedelta(seconds=READY_SECONDS))
        except RuntimeError as error:
            raise self._lost(error) from None

    def keeps_files(self, folder: Path) -> bool:
        """Whether the first machine's files cannot be seen here."""
        self._mark = folder / ".first"
        if self._rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            token = f"{os.getpid()} {time.time_ns()}"
            self._mark.write_text(token)
            self._store.set("mark", token)
            return True
        token = self._store.get("mark").decode()
        return not (self._mark.is_file() and self._mark.read_text() == token)

    def beat(self, step: int) -> None:
        if time.monotonic() - self._beaten >= BEAT_SECONDS:
            self._beaten = time.monotonic()
            self._store.set(f"step/{self._rank}", str(step))

    def sum(self, numbers: Numbers, stop: bool) -> bool:
        """Add up, in place; also whether anyone was asked to stop, which a number behind the others says."""
        kind = self._torch.from_numpy(numbers[:0]).dtype
        if self._room is None or self._room.dtype != kind or len(self._room) <= len(numbers):
            self._room = self._torch.empty(len(numbers) + 1, dtype=kind)  # kept: fresh memory is slow
        message = self._room[: len(numbers) + 1]
        message[:-1] = self._torch.from_numpy(numbers)
        message[-1] = int(stop)
        self._reduce(message)
        numbers[...] = message[:-1].numpy()
        return bool(message[-1] > 0)

    def add_up(self, numbers: Numbers) -> None:
        self._reduce(self._torch.from_numpy(numbers))

    def add_halves(self, numbers: npt.NDArray[np.float32]) -> None:
        message = self._torch.from_numpy(numbers).to(self._torch.bfloat16)
        self._reduce(message)
        numbers[...] = message.float().numpy()

    def _reduce(self, message: Any) -> None:
        if self.patient:
            self._wait_for_all()
        began = time.perf_counter()
        try:
            self._dist.all_reduce(message)
        except RuntimeError as error:
            raise self._lost(error) from None
        self.seconds += time.perf_counter() - began
        self.bytes += message.numel() * message.element_size()

    def _lost(self, error: RuntimeError) -> LostWorkerError:
        """Who is behind the others is the one that all wait for; its name is asked for, but not for long."""
        reason = re.sub(r"^\[[^\]]*\] ", "", str(error)).splitlines()[0][:200]
        found: list[str] = []
        asking = threading.Thread(target=lambda: found.append(self._last()), daemon=True)
        asking.start()
        asking.join(NAME_SECONDS)
        if not found:
            return LostWorkerError(f"lost contact with worker 0 or its machine ({reason})")
        return LostWorkerError(f"{found[0]} ({reason})")

    def _last(self) -> str:
        steps = {}
        for other in range(self._size):
            known = self._store.check([f"step/{other}"])
            steps[other] = int(self._store.get(f"step/{other}")) if known else 0
        others = [other for other in steps if other != self._rank]
        last = min(others, key=lambda other: steps[other], default=self._rank)
        who = self._store.get(f"who/{last}").decode()
        return f"{who} does not answer, after step {steps[last]:,} or a little later"


def _engine() -> tuple[Any, Any]:
    try:
        import torch  # noqa: PLC0415
        import torch.distributed as dist  # noqa: PLC0415
    except ImportError:
        raise missing_extra("torch", "torch") from None
    torch.set_num_threads(1)  # the numbers are computed by our own kernels
    return torch, dist


def _choose_interface(address: str) -> None:
    """Talk over the interface that leads to the first worker; on one machine, that is the loopback one."""
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    here = local_address(address)
    for _, name in socket.if_nameindex():
        if here and _address_of(name) == here:
            os.environ["GLOO_SOCKET_IFNAME"] = name


def _address_of(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            found = fcntl.ioctl(probe.fileno(), ASK_ADDRESS, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(found[20:24])
