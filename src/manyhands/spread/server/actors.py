"""Workers and shards as actors of Ray: processes that it places, watches and starts again."""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from manyhands.engines.ray import first_done, node_here
from manyhands.errors import ManyhandsError
from manyhands.spread.server.arrivals import MOST_REPLICAS
from manyhands.spread.server.journal import KIND, Claim, remove_abandoned
from manyhands.spread.server.lines import LostError
from manyhands.spread.server.memory import can_share
from manyhands.spread.server.messages import Exchanged, Learnt, Lease, Place, Push, Reply, Table
from manyhands.spread.server.shard import Shard
from manyhands.spread.server.worker import Begin, Opening, Worker
from manyhands.storage.tensors import Arrays

END_SECONDS = 10.0
EXCHANGE, LEARN = "exchange", "learn"  # what a worker does side by side


class ShardActor:
    """A shard in a process of its own. Ray starts a killed one again, and repeats what it was asked."""

    def __init__(self, number: int, shards: int, name: str) -> None:
        remove_abandoned()
        self._shard = Shard(number, shards, name)

    def begin(self, tables: list[Table], replicas: int, values: Arrays) -> None:
        self._shard.begin(tables, replicas, values)

    def exchange(self, push: Push) -> Reply:
        return self._shard.exchange(push)

    def tell_all(self, replica: int, life: int) -> Reply:
        return self._shard.tell_all(replica, life)

    def state(self) -> Arrays:
        return self._shard.state()

    def end(self) -> None:
        self._shard.end()


class WorkerActor:
    """A worker in a process of its own: it exchanges while it learns."""

    def __init__(self, opening: Opening, sums: list[bytes], shards: list[Any]) -> None:
        self._opening, self._sums, self._shards = opening, sums, shards

    def node(self) -> str:
        """Where Ray has placed it."""
        import ray  # noqa: PLC0415

        return str(ray.get_runtime_context().get_node_id())

    def open(self) -> Place:
        self._worker = Worker.open(self._opening, self._sums, self.node())
        self._sums = []
        return self._worker.place()

    def join(self, other: Place) -> Place:
        return self._worker.join(other)

    def speak(self, number: int, life: int, begin: Begin) -> int:
        return self._worker.speak(number, life, RayShards(self._shards), begin)

    def exchange(self, *, whole: bool, pull: bool) -> Exchanged:
        return self._worker.exchange(whole=whole, pull=pull)

    def learn(self, lease: Lease) -> Learnt:
        return self._worker.learn(lease)


class RayShards:
    """The way from a worker to all shards."""

    def __init__(self, shards: list[Any]) -> None:
        self._shards = shards

    def __len__(self) -> int:
        return len(self._shards)

    def exchange(self, pushes: Sequence[Push]) -> list[Reply]:
        import ray  # noqa: PLC0415

        asked = [shard.exchange.remote(push) for shard, push in zip(self._shards, pushes, strict=True)]
        replies: list[Reply] = ray.get(asked)
        return replies

    def tell_all(self, replica: int, life: int) -> list[Reply]:
        import ray  # noqa: PLC0415

        replies: list[Reply] = ray.get([shard.tell_all.remote(replica, life) for shard in self._shards])
        return replies


class RayLines:
    """The driver's way to all of them."""

    def __init__(
        self, library: Any, openings: list[Opening], nodes: list[str], sums: list[bytes], shards: int
    ) -> None:
        self._ray, self._openings, self.shards, self.shares_memory = library, openings, shards, can_share()
        self._nodes, self.here = nodes, node_here(library) if can_share() else ""
        name = KIND + secrets.token_hex(8)
        self._claim = Claim(name)
        self._sums = library.put(sums)  # once, for all workers
        kept_alive = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
        kept_alive["max_concurrency"] = MOST_REPLICAS + 1  # replicas wait for each other; the driver does not
        actor = library.remote(ShardActor).options(**kept_alive, scheduling_strategy="SPREAD")
        self._shards = [actor.remote(number, shards, name) for number in range(shards)]
        self._worker = library.remote(concurrency_groups={EXCHANGE: 1, LEARN: 1})(WorkerActor)
        self._started: list[Any] = []

    def start(self, rank: int, node: str = "") -> Any:
        opening, node = self._openings[rank], node or self._nodes[rank]
        options: dict[str, Any] = {"num_cpus": opening.threads}
        if node:  # and elsewhere only if that machine is gone
            near = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
            options["scheduling_strategy"] = near(node, soft=True)
        self._started.append(self._worker.options(**options).remote(opening, self._sums, self._shards))
        return self._started[-1]

    def ask(self, who: Any, what: str, *arguments: Any, **named: Any) -> Any:
        group = EXCHANGE if what == "exchange" else LEARN
        return getattr(who, what).options(concurrency_group=group).remote(*arguments, **named)

    def wait(self, asked: Sequence[Any], seconds: float) -> Sequence[Any]:
        return first_done(self._ray, asked, seconds)

    def answer(self, asked: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(asked)
        except (errors.RayActorError, errors.OutOfMemoryError, errors.NodeDiedError) as error:
            raise LostError(str(error).splitlines()[0]) from None
        except errors.RayTaskError as error:
            if isinstance(error.cause, ManyhandsError):
                raise error.cause from None
            raise

    def stop(self, who: Any) -> None:
        self._ray.kill(who)

    def begin_shards(self, tables: list[Table], replicas: int, values: list[Arrays]) -> None:
        pairs = zip(self._shards, values, strict=True)
        self._ray.get([shard.begin.remote(tables, replicas, mine) for shard, mine in pairs])

    def shard_states(self) -> list[Arrays]:
        states: list[Arrays] = self._ray.get([shard.state.remote() for shard in self._shards])
        return states

    def end(self) -> None:
        """Whoever is still there ends, and leaves nothing behind."""
        try:
            for worker in self._started:
                self._ray.kill(worker)
            with suppress(Exception):  # a shard that is being started again has other things to do
                self._ray.get([shard.end.remote() for shard in self._shards], timeout=END_SECONDS)
            for shard in self._shards:
                self._ray.kill(shard)
        finally:
            self._claim.release()
