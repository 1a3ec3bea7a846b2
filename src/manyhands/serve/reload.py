"""Following a bundle: one that takes its place is opened beside the old one, and then takes over."""

import asyncio
import logging
from contextlib import suppress

from manyhands.bundle.bundle import identity_of
from manyhands.serve.model import open_model
from manyhands.serve.service import Service

LOG = logging.getLogger("manyhands.serve")
Identity = tuple[object, ...]


class Follower:
    """Looks at the path or URL now and then. What cannot be opened is told once, and the old model stays."""

    def __init__(self, path: str, service: Service, seen: Identity | None) -> None:
        self._path, self._service, self._seen = path, service, seen
        self._asked = asyncio.Event()
        self._out_of_reach = False

    def look_now(self) -> None:
        """Open the bundle again, whether it looks new or not."""
        self._asked.set()

    async def follow(self) -> None:
        seconds = self._service.settings.reload_seconds or None
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), seconds)
            asked = self._asked.is_set()
            self._asked.clear()
            found = await asyncio.to_thread(self._look)
            if asked or (found is not None and found != self._seen):
                self._seen = found
                await self._reload()

    def _look(self) -> Identity | None:
        try:
            found = identity_of(self._path)
        except Exception as error:  # of any library that a store needs
            if not self._out_of_reach:
                LOG.warning("no new bundle is looked for until this works again: %s", error)
            self._out_of_reach = True
            return None
        self._out_of_reach = False
        return found

    async def _reload(self) -> None:
        service = self._service
        try:
            model = await asyncio.to_thread(
                open_model, self._path, service.model.name, service.limits, service.metrics
            )
        except Exception as error:  # whatever is wrong with the new one, the old one is fine
            service.metrics.reload("refused")
            LOG.warning("the new bundle is not taken, and the old one stays: %s", error)
            return
        service.replace(model)
        service.metrics.reload("taken")
        LOG.info("%s: version %s has taken over", model.name, model.version)
