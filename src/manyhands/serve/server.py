"""``serve``: a bundle behind HTTP, until it is told to end."""

import asyncio
import gc
import ipaddress
import logging
import re
import socket
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from manyhands.bundle.bundle import identity_of
from manyhands.errors import UsageError, missing_extra
from manyhands.serve.metrics import Metrics
from manyhands.serve.model import ServedModel, open_model
from manyhands.serve.reload import Follower
from manyhands.serve.service import Service, read_token
from manyhands.serve.settings import LimitSettings, ServeSettings
from manyhands.storage.files import StrPath

LOG = logging.getLogger("manyhands.serve")
PARTS = ("uvicorn", "httptools", "uvloop")
BACKLOG = 2048


def serve(bundle: StrPath, *, ready: Callable[[str], None] | None = None, **settings: Any) -> None:
    """Serve a bundle until SIGTERM or Ctrl-C; ``ready`` is told the address once requests are taken."""
    for part in PARTS:
        if find_spec(part) is None:
            raise missing_extra(part, "serve")
    chosen, limits = _split(settings)
    token = read_token(chosen.token_file, LOG.warning) if chosen.token_file else b""
    path, metrics = str(bundle), Metrics()
    seen = identity_of(path)
    model = open_model(path, chosen.name or name_of(path), limits, metrics)
    with _listen(chosen.host, chosen.port) as listening:
        address = _address(listening, chosen.host)
        _warn(chosen.host, address, bool(token))
        service = Service(model, chosen, limits, metrics, token)
        _run(service, Follower(path, service, seen), listening, lambda: _tell(model, address, ready))


def _run(service: Service, follower: Follower, listening: socket.socket, tell: Callable[[], None]) -> None:
    from manyhands.serve.app import App  # noqa: PLC0415 - uvicorn is an extra
    from manyhands.serve.connections import Server  # noqa: PLC0415

    server = Server(App(service), service, follower.look_now)
    # What is loaded by now stays. To look all of it over for garbage, as Python does now and then, would keep
    # requests waiting for 40 ms and more.
    gc.collect()
    gc.freeze()

    async def run() -> None:
        following = asyncio.create_task(follower.follow())
        asyncio.get_running_loop().call_soon(tell)
        try:
            await server.serve([listening])
        finally:
            following.cancel()
            service.close()

    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(run())


def _split(settings: dict[str, Any]) -> tuple[ServeSettings, LimitSettings]:
    """Each setting to its owner; what is nobody's is told with the nearest right one."""
    limits = {name: settings[name] for name in settings if name in LimitSettings.model_fields}
    rest = {name: settings[name] for name in settings if name not in limits}
    return ServeSettings.create(**rest), LimitSettings.create(**limits)


def name_of(path: str) -> str:
    """The name of a model by that of its folder.

    >>> name_of("runs/yelp/"), name_of("s3://bucket/my model"), name_of("/")
    ('yelp', 'my-model', 'model')
    """
    last = path.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-._")[:100] or "model"


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(
            f"cannot listen on {host}, port {port}: {why}; choose another --host or --port"
        ) from None
    listening.setblocking(False)
    return listening


def _address(listening: socket.socket, host: str) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _warn(host: str, address: str, has_token: bool) -> None:
    if _is_loopback(host):
        return
    who = "whoever has the token" if has_token else "everyone"
    LOG.warning(
        "%s is open to the network: %s who can reach it may use the model, its labels and its words%s",
        address,
        who,
        " (unencrypted: put a proxy with TLS before it)"
        if has_token
        else "; ask for a token with --token-file",
    )


def _tell(model: ServedModel, address: str, ready: Callable[[str], None] | None) -> None:
    facts = model.facts()
    what = f"{len(facts.labels):,} labels" if facts.labels else f"{facts.words:,} words"
    LOG.info("%s (%s, %s) is served at %s", model.name, facts.model, what, address)
    if ready is not None:
        ready(address)
