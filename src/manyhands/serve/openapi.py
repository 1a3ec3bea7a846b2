"""The OpenAPI description of the service, made from its routes and their schemas."""

from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from manyhands import __version__
from manyhands.serve.answers import JSON, Answer, as_json
from manyhands.serve.requests import Request, Route
from manyhands.serve.schemas import Error

PLACE = "#/components/schemas/{model}"
PATH = "/openapi.json"
TOKEN: dict[str, list[str]] = {"bearer": []}
ALWAYS_POSSIBLE = (401,)
WITH_BODY = (400, 413, 429, 503)
BUSY = (429, 503)


def route(others: list[Route]) -> Route:
    """The route of the description itself."""

    async def openapi(request: Request) -> Answer:
        """Describe the service."""
        return described

    found = Route("GET", PATH, openapi, {JSON: {"type": "object"}}, for_all=True)
    described = as_json(description([*others, found]))
    return found


def description(routes: list[Route]) -> dict[str, Any]:
    kinds = {kind for one in routes for kind in _kinds(one)} | {Error}
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    _, schemas = models_json_schema([(kind, "validation") for kind in ordered], ref_template=PLACE)
    paths: dict[str, Any] = {}
    for one in routes:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "manyhands", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _kinds(one: Route) -> list[type[BaseModel]]:
    given = [*_by_type(one.gives).values(), *_by_type(one.takes or {}).values()]
    return [kind for kind in given if isinstance(kind, type)]


def _by_type(what: Any) -> dict[str, Any]:
    return what if isinstance(what, dict) else {JSON: what}


def _operation(one: Route) -> dict[str, Any]:
    statuses = {*one.refuses}
    if not one.for_all:
        statuses.update(ALWAYS_POSSIBLE)
    if not one.always:
        statuses.update(BUSY)
    if one.takes:
        statuses.update(WITH_BODY)
    if one.always:
        statuses.add(503)
    answers = {"200": {"description": "OK", "content": _content(one.gives)}}
    for status in sorted(statuses):
        answers[str(status)] = {"description": HTTPStatus(status).phrase, "content": _content(Error)}
    body = {"requestBody": {"required": True, "content": _content(one.takes)}} if one.takes else {}
    security = {} if one.for_all else {"security": [TOKEN, {}]}
    name = f"{one.handle.__name__}"
    return {"operationId": name, "summary": one.summary, **security, **body, "responses": answers}


def _content(what: Any) -> dict[str, Any]:
    return {kind: {"schema": _schema(schema)} for kind, schema in _by_type(what).items()}


def _schema(schema: Any) -> dict[str, Any]:
    return {"$ref": PLACE.format(model=schema.__name__)} if isinstance(schema, type) else schema
