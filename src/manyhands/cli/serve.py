"""``manyhands serve``: a trained model behind HTTP, and a page to try it."""

import logging
import sys
from typing import Any

import typer

from manyhands.cli.options import BundleArgument, Panel, add_verb
from manyhands.serve.settings import LimitSettings, ServeSettings


def add_to(app: typer.Typer, arguments: list[str]) -> None:
    add_verb(app, serve, [ServeSettings, LimitSettings], panels)


def panels() -> list[Panel]:
    return [Panel("Service", [ServeSettings]), Panel("Limits", [LimitSettings])]


def serve(bundle: BundleArgument, settings: dict[str, Any]) -> None:
    """Serve a model over HTTP: an API, and a page to try it with.

    A bundle that takes the place of the old one is served from then on, as is every snapshot of a stream.
    SIGTERM and Ctrl-C end the service when all requests that it took are answered.
    """
    from manyhands.serve.server import serve as run

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="manyhands: %(message)s")
    run(bundle, **settings)
