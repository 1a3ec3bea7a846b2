"""A crew's lines to each other: PyTorch's process group, with names for who does not answer."""

import fcntl
import os
import re
import signal
import socket
import struct
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from manyhands.engines.torchrun import WHO, local_address, open_store, rank
from manyhands.errors import ManyhandsError, UsageError, missing_extra

READY_SECONDS = 3600.0  # for reading the rows, which may take one worker longer than another
BEAT_SECONDS = 1.0
NAME_SECONDS = 10.0
ASK_ADDRESS = 0x8915  # the number of Linux for an interface's address


class LostWorkerError(ManyhandsError):
    """Some worker does not answer; whoever started the crew may start it again."""


class Group:
    """Who this worker is, and what it can ask the others for.

    All calls are made by all workers, in the same order. One of them that does not come within
    ``stall_seconds`` is named in the error of the others.
    """

    def __init__(self, stall_seconds: float) -> None:
        for name in WHO:
            if name not in os.environ:
                raise UsageError(f"{name} is not set: start the crew by torchrun, or with --workers")
        self.rank, self.size = rank(), int(os.environ["WORLD_SIZE"])
        self._local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self._stall = timedelta(seconds=stall_seconds)
        self._torch, self._dist = _engine()
        self.bytes, self.seconds = 0, 0.0
        self._stop_asked, self._beaten = False, 0.0
        self._room = self._torch.empty(0)
        self._mark: Path | None = None
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        _choose_interface(os.environ["MASTER_ADDR"])
        for number in (signal.SIGTERM, signal.SIGINT):
            self._handlers[number] = signal.signal(number, self._note_stop)
        self._store = self._found_store()
        self._store.set(f"who/{self.rank}", f"{socket.gethostname()} {os.getpid()}")
        # The group is made when all are there, so that no one's slow reading counts as silence.
        return self

    def _found_store(self) -> Any:
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # then torchrun itself leads
        return open_store(host, port, leads=self.rank == 0 and not agents, seconds=READY_SECONDS)

    def _note_stop(self, *_: Any) -> None:
        self._stop_asked = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._mark and self.rank == 0:
            self._mark.unlink(missing_ok=True)
        if self._dist.is_initialized():
            with suppress(Exception):  # a group that lost someone cannot be closed in good order
                self._dist.destroy_process_group()

    def wait_for_all(self) -> None:
        self._store.set(f"ready/{self.rank}", "1")
        try:
            self._store.wait(
                [f"ready/{other}" for other in range(self.size)], timedelta(seconds=READY_SECONDS)
            )
            self._dist.init_process_group(
                "gloo", store=self._store, rank=self.rank, world_size=self.size, timeout=self._stall
            )
        except RuntimeError as error:
            raise self._lost(error) from None
        if self.rank == 0 and self._mark:  # all have looked for it
            self._mark.unlink(missing_ok=True)

    def keeps_files(self, folder: Path | None) -> bool:
        """Whether this worker writes checkpoints: the first, and one on a node that cannot see its files."""
        if folder is None:
            return False
        self._mark = folder / ".first"
        if self.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            token = f"{os.getpid()} {time.time_ns()}"
            self._mark.write_text(token)
            self._store.set("mark", token)
            return True
        token = self._store.get("mark").decode()
        seen = self._mark.is_file() and self._mark.read_text() == token
        return self._local_rank == 0 and not seen

    def name(self, worker: int) -> str:
        host, _, process = self._store.get(f"who/{worker}").decode().partition(" ")
        return f"worker {worker} on {host} (process {process})"

    def beat(self, step: int) -> None:
        """Say how far this worker has come, now and then, for those who may look for it."""
        if time.monotonic() - self._beaten >= BEAT_SECONDS:
            self._beaten = time.monotonic()
            self._store.set(f"step/{self.rank}", str(step))

    def sum(self, numbers: npt.NDArray[np.float32]) -> bool:
        """Add up over the crew, in place; also whether anyone was asked to stop."""
        if len(self._room) <= numbers.size:  # kept from step to step: fresh memory is slow
            self._room = self._torch.empty(numbers.size + 1, dtype=self._torch.float32)
        message = self._room[: numbers.size + 1]
        message[:-1] = self._torch.from_numpy(numbers.reshape(-1))
        message[-1] = float(self._stop_asked)
        self._timed(lambda: self._dist.all_reduce(message), message)
        numbers[...] = message[:-1].numpy().reshape(numbers.shape)
        return bool(message[-1] > 0)

    def add_up(self, numbers: npt.NDArray[Any]) -> None:
        """Add up over the crew, in place and in the numbers' own type."""
        message = self._torch.from_numpy(numbers)
        self._timed(lambda: self._dist.all_reduce(message), message)

    def add_halves(self, numbers: npt.NDArray[np.float32]) -> None:
        """The same, but only half of the bits travel: for moves, of which a little may be rounded away."""
        message = self._torch.from_numpy(numbers).to(self._torch.bfloat16)
        self._timed(lambda: self._dist.all_reduce(message), message)
        numbers[...] = message.float().numpy()

    def gather(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """What each worker has, a row each."""
        mine = self._torch.from_numpy(np.ascontiguousarray(numbers))
        all_of_them = [self._torch.empty_like(mine) for _ in range(self.size)]
        self._timed(lambda: self._dist.all_gather(all_of_them, mine), mine)
        return np.stack([one.numpy() for one in all_of_them])

    def text_of(self, worker: int, text: str) -> str:
        """What one worker says, for all."""
        size = np.array([len(text.encode())], np.float64)
        sizes = self.gather(size)[:, 0]
        message = self._torch.zeros(int(sizes[worker]), dtype=self._torch.uint8)
        if worker == self.rank:
            message[:] = self._torch.frombuffer(bytearray(text.encode()), dtype=self._torch.uint8)
        self._timed(lambda: self._dist.broadcast(message, worker), message)
        return bytes(message.numpy()).decode()

    def same_for_all(self, array: npt.NDArray[Any], worker: int) -> None:
        """Give everyone the numbers of one worker."""
        whole = np.ascontiguousarray(array)
        message = self._torch.from_numpy(whole.reshape(-1).view(np.uint8))
        self._timed(lambda: self._dist.broadcast(message, worker), message)
        array[...] = whole

    def _timed(self, call: Any, message: Any) -> None:
        began = time.perf_counter()
        try:
            call()
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
        for worker in range(self.size):
            known = self._store.check([f"step/{worker}"])
            steps[worker] = int(self._store.get(f"step/{worker}")) if known else 0
        others = [worker for worker in steps if worker != self.rank]
        last = min(others, key=lambda worker: steps[worker], default=self.rank)
        return f"{self.name(last)} does not answer, after step {steps[last]:,} or a little later"


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
