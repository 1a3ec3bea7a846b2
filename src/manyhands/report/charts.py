"""The pictures of a report, drawn by Vega-Lite as SVG that stands in the page.

Colours are the page's own variables, so that a picture is light or dark as the page is. All are as wide as a
phone, and scaled up where there is room. Each has a name for those who do not see it; its numbers stand below
it as a table.
"""

import html
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from manyhands.errors import missing_extra
from manyhands.records import PARTS
from manyhands.report.document import Block

TAG, ROLES = re.compile(r"<[^>]+>"), re.compile(r""" (?:role|aria-\w+)="[^"]*\"""")
WIDTH = 360
HEIGHT = 240
COLOURS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
PART_COLOURS = {
    "load": "six",
    "forward": "one",
    "backward": "seven",
    "learn": "one",
    "exchange": "two",
    "wait": "five",
    "update": "three",
    "validate": "four",
}
MOST_NAMED = 25  # labels whose names can be read along an axis
MOST_COUNTED = 10  # labels with room for a number in each cell
WIDE_SPAN = 20.0  # the largest of the values is so many times the smallest
MOST_TICKS = 6
SHORT_NAME = 14  # letters of one of two names beside each other in a legend
SHORT_NAMES = 30  # letters that have room side by side
BAR, MOST_BARS = 22, 16  # a worker's bar; more workers share the height of so many
LEAST_SHADE, MOST_SHADE = 0.06, 0.5  # of a cell; a number is legible on all of them, light and dark
CONFIG = {
    "aria": False,  # the picture as a whole has a name, and its numbers stand in a table
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--quiet)",
        "titleColor": "var(--quiet)",
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelFlush": False,
        "titlePadding": 8,
    },
    "legend": {
        "labelColor": "var(--ink)",
        "labelFontSize": 12,
        "title": None,
        "orient": "bottom",
        "direction": "horizontal",
        "columns": 3,
        "columnPadding": 28,  # room for letters that are wider in a browser
        "labelLimit": 150,
        "symbolType": "square",
        "symbolStrokeWidth": 0,
    },
}
DASHED = {"type": "line", "strokeDash": [5, 4], "stroke": "var(--quiet)", "strokeWidth": 1.5}


class Curve(NamedTuple):
    name: str
    points: list[tuple[float, float]]


class Place(NamedTuple):
    """A run among others; ``stands_out`` if it is to be looked at first."""

    name: str
    x: float
    y: float
    stands_out: bool


def draw(spec: dict[str, Any], alternative: str) -> Block:
    """The picture as SVG; ``alternative`` says what is to be seen."""
    try:
        import vl_convert  # noqa: PLC0415 - an extra
    except ImportError:
        raise missing_extra("vl-convert-python", "report") from None
    whole = {
        "width": WIDTH,
        "height": HEIGHT,
        "background": None,
        "padding": {"left": 2, "top": 8, "right": 12, "bottom": 4},
        "autosize": {"type": "fit", "contains": "padding"},
        "config": CONFIG,
        **spec,
    }
    svg: str = vl_convert.vegalite_to_svg(whole)
    # Parts of a picture have no names of their own, so they must not have roles either.
    _, _, rest = TAG.sub(lambda tag: ROLES.sub("", tag[0]), svg).partition("viewBox=")
    name = html.escape(alternative)
    return Block(f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{name}" viewBox={rest}')


def curves(
    shown: Sequence[Curve], x: str, y: str, marked: float | None = None, *, whole: bool = True
) -> Block:
    """Lines over ``x``; ``marked`` is a place on it, and ``whole`` says that it counts in whole numbers."""
    rows = [{"name": c.name, "x": px, "y": py} for c in shown for px, py in c.points]
    axis = {"values": _whole(rows), "format": ",d"} if whole else {"tickCount": 6, "format": ",~g"}
    encoding = {
        "x": _number("x", x, axis={**axis, "grid": False}),
        "y": _number("y", y, axis={"tickCount": 5}),
        "color": _colours([c.name for c in shown]),
    }
    points = [{"mark": {"type": "circle", "size": 36, "opacity": 1}, "encoding": dict(encoding)}]
    if len(shown) > 1:  # lines that lie on each other can be told apart
        dashes = [[1, 0], *([6, 3 + n] for n in range(1, len(shown)))]
        scale = {"domain": [c.name for c in shown], "range": dashes}
        encoding["strokeDash"] = {"field": "name", "type": "nominal", "scale": scale, "legend": None}
    layers: list[dict[str, Any]] = [
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": encoding},
        *points,
    ]
    if marked is not None:
        rule = {"type": "rule", "strokeDash": [3, 3], "stroke": "var(--quiet)"}
        layers.insert(
            0, {"mark": rule, "data": {"values": [{"x": marked}]}, "encoding": {"x": _number("x", x)}}
        )
    spec = {"data": {"values": rows}, "layer": layers}
    return draw(spec, f"{y} by {x}: {_ends(shown)}")


def confusion(cells: Sequence[tuple[int, int, int, float]], names: Sequence[str]) -> Block:
    """Cells of true and predicted label (by place), rows, and their share of the rows of the true label."""
    rows = [{"true": t, "predicted": p, "rows": count, "share": share} for t, p, count, share in cells]
    places = list(range(len(names)))
    named = len(names) <= MOST_NAMED
    size = 12 if len(names) <= MOST_COUNTED else 10

    def axis(title: str, **more: Any) -> dict[str, Any]:
        # Names are looked up by place: two that read alike are still two labels.
        labels = (
            {"labels": True, "labelExpr": f"{_literal(names)}[datum.value]"} if named else {"labels": False}
        )
        return {
            "title": title,
            "grid": False,
            "ticks": False,
            "labelLimit": 110,
            "labelFontSize": size,
            **labels,
            **more,
        }

    encoding = {
        "x": {"field": "predicted", "type": "ordinal", "scale": {"domain": places, "paddingInner": 0}}
        | {"axis": axis("predicted label", labelAngle=_angle(names))},
        "y": {"field": "true", "type": "ordinal", "scale": {"domain": places, "paddingInner": 0}}
        | {"axis": axis("true label")},
    }
    shade = {
        "field": "share",
        "type": "quantitative",
        "scale": {"domain": [0, 1], "range": [LEAST_SHADE, MOST_SHADE]},
        "legend": None,
    }
    if not named:  # cells of three pixels need all the colour that there is
        shade["scale"] = {"domain": [0, 1], "range": [0.25, 1]}
    layers: list[dict[str, Any]] = [
        {"mark": {"type": "rect", "fill": "var(--one)"}, "encoding": {**encoding, "fillOpacity": shade}}
    ]
    if len(names) <= MOST_COUNTED:
        number = {"field": "rows", "type": "quantitative", "format": ",d"}
        mark = {"type": "text", "fill": "var(--ink)", "fontSize": 12 if len(names) <= 5 else 10}
        layers.append({"mark": mark, "encoding": {**encoding, "text": number}})
    spec = {"height": WIDTH, "data": {"values": rows}, "layer": layers}
    return draw(spec, f"Confusion matrix of {len(names)} labels: true labels down, predicted labels across")


def reliability(bins: Sequence[dict[str, float]], ece: float) -> Block:
    """How often predictions come true by how sure they were; on the line where they are as sure as right."""
    rows = [{"x": b["confidence"], "y": b["right"], "rows": b["rows"]} for b in bins]
    unit = {"domain": [0, 1]}
    x = _number("x", "predicted probability", scale=unit, axis={"format": ".0%", "tickCount": 5})
    y = _number("y", "share that is right", scale=unit, axis={"format": ".0%", "tickCount": 5})
    size = {"field": "rows", "type": "quantitative", "scale": {"range": [20, 300]}, "legend": None}
    layers = [
        {
            "mark": DASHED,
            "data": {"values": [{"x": 0, "y": 0}, {"x": 1, "y": 1}]},
            "encoding": {"x": x, "y": y},
        },
        {"mark": {"type": "line", "stroke": "var(--one)", "strokeWidth": 2}, "encoding": {"x": x, "y": y}},
        {
            "mark": {"type": "circle", "fill": "var(--one)", "opacity": 1},
            "encoding": {"x": x, "y": y, "size": size},
        },
    ]
    spec = {"height": 300, "data": {"values": rows}, "layer": layers}
    return draw(spec, f"Reliability curve: the expected calibration error is {ece:.4f}")


def time_spent(seconds: dict[str, list[float]]) -> Block:
    """A bar for each worker, divided by what its seconds were spent on."""
    parts = [part for part in PARTS if part in seconds]
    workers = max(map(len, seconds.values()))
    rows = [
        {"worker": worker, "part": part, "seconds": spent, "order": parts.index(part)}
        for part in parts
        for worker, spent in enumerate(seconds[part])
    ]
    few = workers <= MOST_BARS
    axis = {"title": None, "labels": few, "ticks": False, "domain": False} | {
        "labelExpr": "'worker ' + datum.value"
    }
    spec = {
        "height": 90 + BAR * (workers if few else MOST_BARS),
        "data": {"values": rows},
        "mark": {"type": "bar"},
        "encoding": {
            "y": {"field": "worker", "type": "ordinal", "axis": axis},
            "x": {"field": "seconds", "type": "quantitative", "title": "seconds", "stack": "zero"}
            | {"axis": {"tickCount": 5}},
            "color": {
                "field": "part",
                "type": "nominal",
                "scale": {"domain": parts, "range": [f"var(--{PART_COLOURS[part]})" for part in parts]},
                "legend": {"columns": 4},
            },
            "order": {"field": "order"},
        },
    }
    return draw(spec, f"Seconds by worker and by what they were spent on: {', '.join(parts)}")


def by_workers(points: Sequence[tuple[int, float]], y: str, ideal: Sequence[tuple[int, float]]) -> Block:
    """A figure over the number of workers, beside what would be ideal."""

    def rows(values: Sequence[tuple[int, float]]) -> dict[str, Any]:
        return {"values": [{"x": x, "y": value} for x, value in values]}

    encoding = {
        "x": _number(
            "x",
            "workers",
            scale={"zero": True},
            axis={"values": [x for x, _ in points], "format": "d", "grid": False},
        ),
        "y": _number("y", y, scale={"zero": True}, axis={"tickCount": 5}),
    }
    line = {"type": "line", "stroke": "var(--one)", "strokeWidth": 2}
    spec = {
        "layer": [
            {"mark": DASHED, "data": rows(ideal), "encoding": encoding},
            {"mark": line, "data": rows(points), "encoding": encoding},
            {"mark": {"type": "circle", "fill": "var(--one)", "size": 50, "opacity": 1}}
            | {"data": rows(points), "encoding": encoding},
        ]
    }
    return draw(spec, f"{y} by the number of workers, beside the ideal line")


def places(shown: Sequence[Place], x: str, y: str) -> Block:
    """Runs on a plane: filled if they stand out. Few have colours of their own, of many those are named."""
    rows = [{"x": p.x, "y": p.y, "name": p.name, "first": p.stands_out} for p in shown]
    # On a logarithmic scale a run of a second and one of an hour both have room.
    scale = "log" if _span([p.x for p in shown]) > WIDE_SPAN else "linear"
    encoding = {
        "x": _number(
            "x", x, scale={"type": scale, "zero": False, "padding": 20}, axis={"tickCount": 5, "format": "~s"}
        ),
        "y": _number("y", y, scale={"zero": False, "padding": 20}, axis={"tickCount": 5}),
    }
    few = len(shown) <= len(COLOURS)
    coloured = {**encoding, "color": _colours([p.name for p in shown]) if few else {"value": "var(--one)"}}
    layers: list[dict[str, Any]] = [
        {
            "transform": [{"filter": "datum.first" if filled else "!datum.first"}],
            "mark": {"type": "point", "filled": filled, "size": 80, "strokeWidth": 2, "opacity": 1},
            "encoding": coloured,
        }
        for filled in (True, False)
    ]
    if not few:
        name = {"type": "text", "dy": -12, "fontSize": 11, "limit": 150, "fill": "var(--ink)"}
        text = {**encoding, "text": {"field": "name"}}
        layers.append({"transform": [{"filter": "datum.first"}], "mark": name, "encoding": text})
    spec = {"height": 280, "data": {"values": rows}, "layer": layers}
    return draw(spec, f"{y} by {x}, of {len(shown)} runs")


def _number(field: str, title: str, *, scale: Any = None, axis: Any = None) -> dict[str, Any]:
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": scale or {"zero": False},
        "axis": axis or {},
    }


def _colours(names: list[str]) -> dict[str, Any]:
    if len(names) == 1:
        return {"value": "var(--one)"}
    colours = [f"var(--{COLOURS[number % len(COLOURS)]})" for number in range(len(names))]
    scale: dict[str, Any] = {"domain": names, "range": colours}
    legend = {"columns": 2 if max(map(len, names)) <= SHORT_NAME else 1, "labelLimit": 280}
    return {"field": "name", "type": "nominal", "scale": scale, "legend": legend}


def _whole(rows: Sequence[dict[str, Any]]) -> list[int]:
    """Whole numbers to write along an axis: few, and evenly apart.

    >>> _whole([{"x": 1.0}, {"x": 3.0}]), _whole([{"x": 1.0}, {"x": 20.0}])
    ([1, 2, 3], [4, 8, 12, 16, 20])
    """
    first, last = int(min(row["x"] for row in rows)), int(max(row["x"] for row in rows))
    size = 10 ** max(0, len(str(last)) - 2)
    step = next(n * size for n in (1, 2, 4, 5, 10, 20, 50) if (last - first) // (n * size) < MOST_TICKS)
    return list(range(-(-first // step) * step, last + 1, step))


def _angle(names: Sequence[str]) -> int:
    """Of the names along the lower edge: upright if they are many, flat if they are short."""
    if len(names) > MOST_COUNTED:
        return -90
    return 0 if len(names) * max(map(len, names)) <= SHORT_NAMES else -45


def _ends(shown: Sequence[Curve]) -> str:
    said = [f"{c.name} from {c.points[0][1]:.4g} to {c.points[-1][1]:.4g}" for c in shown if c.points]
    return "; ".join(said)


def _literal(names: Sequence[str]) -> str:
    """Names as a list in an expression; only their characters, whatever they are.

    >>> _literal(["a'b", "c"])
    "['\\\\u0061\\\\u0027\\\\u0062','\\\\u0063']"
    """
    units = (name.encode("utf-16-be") for name in names)
    spelt = ("".join(f"\\u{name[i]:02x}{name[i + 1]:02x}" for i in range(0, len(name), 2)) for name in units)
    return "[" + ",".join(f"'{name}'" for name in spelt) + "]"


def _span(values: Sequence[float]) -> float:
    return max(values) / min(values) if min(values) > 0 else math.inf
