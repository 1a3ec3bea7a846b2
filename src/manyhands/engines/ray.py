"""Ray: started here or joined elsewhere, quietly; what it exposes is said, its complaints in one sentence."""

import logging
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

from pydantic import Field

from manyhands.errors import ManyhandsError, UsageError, missing_extra
from manyhands.settings import Settings

AUTHENTICATION, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
STORE_BYTES = (
    256 << 20
)  # of memory for messages on their way, at least; Ray would take a third of the machine
ADDRESS = re.compile(r"auto$|ray://[^\s/:]+:\d{1,5}$|[^\s/:]+:\d{1,5}$")
LONGEST_REASON = 300
# Ray gives up a start after half a minute, which can be too short on a busy machine; it has no setting.
STARTS, TOO_SLOW = 4, "timed out during startup"


class RaySettings(Settings):
    """Where Ray is."""

    address: Annotated[
        str | None,
        Field(description="A running Ray: auto, host:6379 or ray://host:10001; by default one starts here."),
    ] = None


def check_address(address: str | None) -> None:
    if address is not None and not ADDRESS.match(address):
        raise UsageError(f"--address {address} is no address of Ray; use auto, host:6379 or ray://host:10001")


@contextmanager
def ray(address: str | None, cpus: int, store_bytes: int) -> Iterator[Any]:
    """The library, connected: to ``address``, or to a Ray of this machine that ends with us.

    One that this process is connected to already is used as it is, and left.
    """
    if find_spec("ray") is None:
        raise missing_extra("ray", "ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault(AUTHENTICATION, "token")
    made = address is None and TOKEN not in os.environ and TOKEN_PATH not in os.environ
    if made:  # known to our own processes only, who inherit it; none is written into the home folder
        os.environ[TOKEN] = secrets.token_hex(32)
    import ray as library  # noqa: PLC0415

    if library.is_initialized():
        yield library
        return
    try:
        _look_at_token_again()
        _connect(library, address, cpus, store_bytes)
        yield library
    finally:
        with suppress(Exception):  # what it was connected to may be gone
            library.shutdown()
        if made:
            os.environ.pop(TOKEN, None)


def _look_at_token_again() -> None:
    """Ray reads it when it is imported, which others may have done before us."""
    with suppress(ImportError, AttributeError):  # these have no public names
        inside: Any = import_module("ray._raylet")
        inside.Config.initialize("")
        inside.AuthenticationTokenLoader.instance().reset_cache()


def _connect(library: Any, address: str | None, cpus: int, store_bytes: int) -> None:
    # What Ray says of killed processes goes to standard output, where only results belong; it has no switch.
    library._private.worker._worker_logs_enabled = False
    quiet = {"log_to_driver": False, "configure_logging": True, "logging_level": logging.ERROR}
    here = {
        "address": "local",
        "num_cpus": cpus,
        "include_dashboard": False,
        "object_store_memory": max(store_bytes, STORE_BYTES),
    }
    for attempt in range(STARTS):
        try:
            library.init(**(here if address is None else {"address": address}), **quiet)
            return
        except Exception as error:
            if TOO_SLOW in str(error) and attempt < STARTS - 1:
                library.shutdown()
                continue
            where = "here" if address is None else f"at {address}"
            raise meaning(error, f"Ray cannot be started or reached {where}") from None


def exposed(library: Any) -> str:
    """What of Ray's own processes others on the network can reach, in a sentence."""
    node: dict[str, Any] = next((node for node in library.nodes() if node["Alive"]), {})
    ports = [node.get(name, 0) for name in ("NodeManagerPort", "ObjectManagerPort", "RuntimeEnvAgentPort")]
    named = ", ".join(str(port) for port in ports if port and port > 0)
    guarded = os.environ.get(AUTHENTICATION) == "token"
    guard = "asks for a token" if guarded else "asks for NO token"
    return (
        f"Ray listens on all interfaces of this machine (ports {named} and one for each worker) and {guard}; "
        "a firewall should keep others away"
    )


def meaning(error: BaseException, what: str) -> ManyhandsError:
    """A complaint of Ray's in one sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[0] if lines else type(error).__name__
    return UsageError(f"{what}: {reason[:LONGEST_REASON]}")


def cores_of_machines(library: Any) -> dict[str, int]:
    """How many cores each machine of the cluster has, by the name that Ray has for it."""
    alive = (node for node in library.nodes() if node["Alive"])
    return {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in alive}


def node_here(library: Any) -> str:
    """The name that Ray has for this machine; empty for a client that is outside of the cluster."""
    outside = library.util.client.ray.is_connected()
    return "" if outside else str(library.get_runtime_context().get_node_id())


def cores_here(library: Any) -> int:
    """Of the machine that this process runs on, as Ray counts them."""
    return cores_of_machines(library).get(node_here(library), 0)


def on_this_machine(library: Any) -> Any:
    """The way of placing actors that puts them where this process runs, and nowhere else."""
    strategies: Any = import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node_id=node_here(library), soft=False)


def first_done(library: Any, asked: Sequence[Any], seconds: float) -> list[Any]:
    """Those that are answered; none if nothing comes in that time."""
    if not asked:
        return []
    done, left = library.wait(list(asked), timeout=seconds)
    more, _ = library.wait(left, num_returns=len(left), timeout=0) if left else ([], [])
    return [*done, *more]
