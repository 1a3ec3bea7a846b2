"""A scaling study as a picture: speed-up by workers beside the ideal line, and efficiency."""

from xml.sax.saxutils import escape

from manyhands.report.picture import text
from manyhands.report.scaling import Point, Run

LINE, IDEAL, GRID = "#2f6db5", "#9aa5b1", "#dddddd"
WIDTH, HEIGHT = 820, 360
CHART_WIDTH, CHART_HEIGHT, TOP = 300, 230, 70
LEFT_EDGES = (60, 470)  # of the two charts


def draw_scaling(title: str, runs: list[Run], points: list[Point]) -> str:
    """The picture as SVG: a circle for each run in each chart, and a line through the fastest."""
    first = points[0]
    ideal = [point.workers / first.workers for point in points]
    speedups = [(run, run.rate / first.rate) for run in runs]
    efficiencies = [(run, speedup / (run.workers / first.workers)) for run, speedup in speedups]
    charts = (
        _Chart("speed-up", LEFT_EDGES[0], points, max(*ideal, *(s for _, s in speedups))),
        _Chart("efficiency", LEFT_EDGES[1], points, max(1.0, *(e for _, e in efficiencies))),
    )
    lines = [text(10, 26, title, size=15)]
    lines += charts[0].lines([point.speedup for point in points], ideal, speedups)
    lines += charts[1].lines([point.efficiency for point in points], [1.0] * len(points), efficiencies)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif">'
    )
    background = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    return "\n".join([head, background, *lines, "</svg>"]) + "\n"


class _Chart:
    """One value by the number of workers; both axes begin at 0."""

    def __init__(self, name: str, left: int, points: list[Point], highest: float) -> None:
        self._name, self._left, self._highest = name, left, highest
        self._workers = [point.workers for point in points]

    def lines(self, best: list[float], ideal: list[float], runs: list[tuple[Run, float]]) -> list[str]:
        drawn = [
            text(self._left, TOP - 18, f"{self._name}, by workers (grey: ideal)", size=13),
            *self._grid(),
        ]
        drawn.append(self._curve(ideal, f'stroke="{IDEAL}" stroke-dasharray="5 4"'))
        drawn.append(self._curve(best, f'stroke="{LINE}" stroke-width="2"'))
        return drawn + [self._circle(run, value) for run, value in runs]

    def _grid(self) -> list[str]:
        drawn, bottom, right = [], TOP + CHART_HEIGHT, self._left + CHART_WIDTH
        for part in (0.0, 0.25, 0.5, 0.75, 1.0):
            y = bottom - part * CHART_HEIGHT
            drawn.append(f'<line x1="{self._left}" x2="{right}" y1="{y}" y2="{y}" stroke="{GRID}"/>')
            drawn.append(text(self._left - 34, y + 4, f"{part * self._highest:.2f}", size=11))
        drawn += [text(self._x(count) - 3, bottom + 18, str(count), size=11) for count in self._workers]
        return drawn

    def _curve(self, values: list[float], style: str) -> str:
        places = zip(self._workers, values, strict=True)
        points = " ".join(f"{self._x(count):.1f},{self._y(value):.1f}" for count, value in places)
        return f'<polyline points="{points}" fill="none" {style}/>'

    def _circle(self, run: Run, value: float) -> str:
        circle = f'<circle cx="{self._x(run.workers):.1f}" cy="{self._y(value):.1f}" r="4" fill="{LINE}">'
        return f"{circle}<title>{escape(f'{run.folder}: {self._name} {value:.3f}')}</title></circle>"

    def _x(self, workers: int) -> float:
        return self._left + CHART_WIDTH * workers / self._workers[-1]

    def _y(self, value: float) -> float:
        return TOP + CHART_HEIGHT * (1 - value / self._highest)
