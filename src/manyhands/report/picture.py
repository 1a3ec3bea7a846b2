"""A profile as a picture: a bar for each worker, and the shares of all over time."""

from xml.sax.saxutils import escape

from manyhands.records import PARTS
from manyhands.report.profile import Profile

COLOURS = {
    "load": "#9aa5b1",
    "forward": "#2f6db5",
    "backward": "#5b9bd5",
    "learn": "#2f6db5",
    "exchange": "#d9822b",
    "wait": "#c23b3b",
    "update": "#4f9d69",
    "validate": "#8e6bb0",
}
WORKER_COLOURS = ("#2f6db5", "#d9822b", "#4f9d69", "#8e6bb0", "#c23b3b", "#9aa5b1")
WIDTH, LEFT, BAR, GAP, HEAD, CHART = 760, 90, 26, 10, 44, 160


def draw(profile: Profile) -> str:
    """The picture as SVG."""
    longest = max((profile.total(worker) for worker in range(profile.workers)), default=0.0) or 1.0
    lines, y = [text(10, 22, f"{profile.model}, {profile.spread}: seconds by worker", size=15)], HEAD
    for worker in range(profile.workers):
        lines.append(text(10, y + 18, f"worker {worker}"))
        x = float(LEFT)
        for part, spent in profile.seconds.items():
            wide = (WIDTH - LEFT - 90) * spent[worker] / longest
            title = f"{part}: {spent[worker]:.2f} s"
            lines.append(_box(x, y, wide, BAR, COLOURS[part], title))
            x += wide
        lines.append(text(x + 6, y + 18, f"{profile.total(worker):.1f} s"))
        y += BAR + GAP
    x = float(LEFT)
    for part in profile.seconds:
        lines += [_box(x, y, 12, 12, COLOURS[part], PARTS[part]), text(x + 16, y + 11, part, size=11)]
        x += 82
    y += 40
    if profile.shares:
        lines += _shares(profile, y)
        y += CHART + 50
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{y}" fill="white"/>', *lines, "</svg>"]) + "\n"


def _shares(profile: Profile, top: int) -> list[str]:
    last = profile.shares[-1][0] or 1
    wide, bottom = WIDTH - LEFT - 90, top + 20 + CHART
    lines = [text(10, top + 8, "share of the rows, by step", size=13)]
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * CHART
        lines.append(f'<line x1="{LEFT}" x2="{LEFT + wide}" y1="{y}" y2="{y}" stroke="#dddddd"/>')
        lines.append(text(LEFT - 44, y + 4, f"{share:.0%}", size=11))
    for worker in range(profile.workers):
        places = [
            (LEFT + wide * step / last, bottom - shares[worker] * CHART)
            for step, shares in profile.shares
            if worker < len(shares)
        ]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        colour = WORKER_COLOURS[worker % len(WORKER_COLOURS)]
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if places:
            lines.append(text(places[-1][0] + 6, places[-1][1] + 4, f"worker {worker}", size=11))
    return lines


def _box(x: float, y: float, wide: float, high: float, colour: str, title: str) -> str:
    box = f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high}" fill="{colour}">'
    return f"{box}<title>{escape(title)}</title></rect>"


def text(x: float, y: float, words: str, size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="#222222">{escape(words)}</text>'
