"""The ASGI application: one way for all requests, from the path to the answer.

Plain ASGI, because a framework's own work would cost more than the model's: decision 18 has the figures.
"""

import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from manyhands.errors import ManyhandsError
from manyhands.serve import api, inference_protocol, openapi, page, sagemaker
from manyhands.serve.answers import SEND_WHOLE, Answer, Refusal
from manyhands.serve.requests import Request, Route, refusal_of
from manyhands.serve.service import Service

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LOG = logging.getLogger("manyhands.serve")
ELSEWHERE = "elsewhere"  # what metrics call all paths that are not ours


class Disconnected(Exception):  # noqa: N818 - nobody is at fault
    """The client has left before its request was complete."""


def all_routes(name: str) -> list[Route]:
    routes = [*api.ROUTES, *inference_protocol.routes(name), *sagemaker.ROUTES, *page.ROUTES]
    return [*routes, openapi.route(routes)]


class App:
    def __init__(self, service: Service) -> None:
        self.service = service
        self._routes: dict[str, dict[str, Route]] = {}
        for route in all_routes(service.model.name):
            self._routes.setdefault(route.path, {})[route.method] = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        path = scope["path"]
        try:
            answer = await self._answer(scope, receive)
        except Refusal as refusal:
            answer = refusal.answer()
        except ManyhandsError as error:
            answer = refusal_of(error).answer()
        except Disconnected:
            return
        except Exception:
            LOG.exception("%s %s failed; this is a bug in manyhands, please report it", scope["method"], path)
            answer = Refusal(500, "this is a bug in manyhands; its log has the details").answer()
        self.service.metrics.request(
            path if path in self._routes else ELSEWHERE, answer.status, time.perf_counter() - began
        )
        send_whole = scope.get("extensions", {}).get(SEND_WHOLE, {}).get("send")
        if send_whole is not None and send_whole(answer):
            return
        headers = answer.all_headers()
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        service, headers = self.service, dict(scope["headers"])
        route = self._route(scope["method"], scope["path"])
        if not route.for_all:
            service.check_token(headers)
        client = scope["client"][0] if scope["client"] else ""
        if route.always:
            return await route.handle(Request(b"", headers, service.model, service))
        # A request is under way once all of it is there: those who send slowly take nobody's place.
        body = await self._body(headers, receive) if route.takes else b""
        service.enter(client)
        try:
            return await route.handle(Request(body, headers, service.model, service))
        finally:
            service.leave(client)

    def _route(self, method: str, path: str) -> Route:
        found = self._routes.get(path)
        if found is None:
            if path.startswith("/v2/models/"):
                raise Refusal(404, f"there is no such model; the one here is {self.service.model.name}")
            raise Refusal(404, "there is nothing at this path; GET /openapi.json lists what there is")
        route = found.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(["HEAD", *found] if "GET" in found else found)
            raise Refusal(405, f"this path takes {allowed} only", headers=[(b"allow", allowed.encode())])
        return route

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        most = self.service.limits.max_body_bytes
        length = headers.get(b"content-length")
        if length is not None and int(length) > most:  # the parser has seen that it is a number
            raise _too_large(most)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        body: bytes = message["body"]
        while message["more_body"] and len(body) <= most:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            body += message["body"]
        if len(body) > most:
            raise _too_large(most)
        return body


def _too_large(most: int) -> Refusal:
    return Refusal(413, f"the body is larger than {most:,} bytes: send fewer texts at a time")
