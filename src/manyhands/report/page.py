"""A page that shows words on a plane: one HTML file that needs no network and no server.

What it shows was written by others, so words stand in the page as data and are never read as
markup. The browser is told to run our script and nothing else, and to fetch nothing.
"""

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from typing import Any

import numpy as np

from manyhands.bundle.bundle import Bundle
from manyhands.bundle.word_vectors import embedding_of, open_either
from manyhands.machine import resources_for
from manyhands.records import Progress
from manyhands.report.plane import Plane, plane
from manyhands.storage.files import refuse_to_replace, writing

TEMPLATE, STYLE, SCRIPTS = "plane.html", "plane.css", ("plane.js", "plane_hands.js", "plane_panel.js")
GAP = re.compile(r"@@(\w+)@@")
GRID = 10_000  # steps from one end of the plane to the other; finer than a screen shows
THOUSANDTHS = 1000


def project(
    path: str,
    out: str,
    *,
    words: int = 2000,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Plane:
    """Write a page of the most frequent words of a bundle, or of a file of vectors."""
    refuse_to_replace(out, overwrite)
    opened = open_either(path)
    embedding = embedding_of(opened) if isinstance(opened, Bundle) else opened
    model = opened.config.model if isinstance(opened, Bundle) else "a file of vectors"
    drawn = plane(embedding, words, seed, resources_for(None, None).threads, progress)
    name = path.rstrip("/").rsplit("/", 1)[-1] or path
    text = page(drawn, name=name, model=model, dim=embedding.dim)
    with writing(out) as file:
        file.write(text.encode())
    return drawn


def page(drawn: Plane, *, name: str, model: str, dim: int) -> str:
    """The page as HTML."""
    style = _part(STYLE)
    script = "\n".join(_part(name) for name in SCRIPTS)
    gaps = {
        "title": html.escape(name),
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "data": as_data({"name": name, "model": model, "dim": dim, **_numbers(drawn)}),
    }
    # In one go: what is filled in may itself look like a gap.
    return GAP.sub(lambda gap: gaps[gap[1]], _part(TEMPLATE))


def as_data(value: Any) -> str:
    """JSON that no HTML can be seen in.

    >>> as_data(["</script>"])
    '["\\\\u003c/script>"]'
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _numbers(drawn: Plane) -> dict[str, Any]:
    """The plane in whole numbers, which take half the room; ``x`` and ``y`` are to the same scale."""
    low = drawn.positions.min(axis=0)
    spread = float((drawn.positions.max(axis=0) - low).max()) or 1.0
    x, y = np.rint((drawn.positions - low) / spread * GRID).astype(int).T.tolist()
    return {
        "words": drawn.words,
        "x": x,
        "y": y,
        "neighbours": drawn.neighbours.tolist(),
        "cosines": np.rint(drawn.cosines * THOUSANDTHS).astype(int).tolist(),
    }


def _part(name: str) -> str:
    return files("manyhands.report").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    """What a Content-Security-Policy calls a text that it allows."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
