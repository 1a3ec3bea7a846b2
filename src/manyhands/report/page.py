"""A page that shows words on a plane: one HTML file that needs no network and no server.

What it shows was written by others, so words stand in the page as data and are never read as
markup. The browser is told to run our script and nothing else, and to fetch nothing.
"""

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
from manyhands.report.document import hash_of
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
    drawn, text = page_of(path, words, seed, progress)
    with writing(out) as file:
        file.write(text.encode())
    return drawn


def page_of(
    path: str, words: int = 2000, seed: int = 0, progress: Progress | None = None
) -> tuple[Plane, str]:
    """The words of a bundle or of a file of vectors on a plane, and the page of them."""
    opened = open_either(path)
    embedding = embedding_of(opened) if isinstance(opened, Bundle) else opened
    model = opened.config.model if isinstance(opened, Bundle) else "a file of vectors"
    drawn = plane(embedding, words, seed, resources_for(None, None).threads, progress)
    name = path.rstrip("/").rsplit("/", 1)[-1] or path
    return drawn, page(drawn, name=name, model=model, dim=embedding.dim)


def page(drawn: Plane, *, name: str, model: str, dim: int) -> str:
    """The page as HTML."""
    style, script = _style_and_script()
    style_hash, script_hash = hashes()
    gaps = {
        "title": html.escape(name),
        "style": style,
        "style_hash": style_hash,
        "script": script,
        "script_hash": script_hash,
        "data": as_data({"name": name, "model": model, "dim": dim, **_numbers(drawn)}),
    }
    # In one go: what is filled in may itself look like a gap.
    return GAP.sub(lambda gap: gaps[gap[1]], _part(TEMPLATE))


def hashes() -> tuple[str, str]:
    """What a page that frames this one must allow: its style and its script."""
    style, script = _style_and_script()
    return hash_of(style), hash_of(script)


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


def _style_and_script() -> tuple[str, str]:
    return _part(STYLE), "\n".join(_part(name) for name in SCRIPTS)


def _part(name: str) -> str:
    return files("manyhands.report").joinpath(name).read_text("utf-8")
