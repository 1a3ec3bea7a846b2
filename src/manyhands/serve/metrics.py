"""Counts and times of a service, as Prometheus reads them."""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)


class _Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        below, comma = 0, "," if labels else ""
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            below += count
            yield f'{name}_bucket{{{labels}{comma}le="{bound}"}} {below}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self._sum:.9g}"
        yield f"{name}_count{braces} {below}"


class Metrics:
    """Of one process. Paths are those of our own routes, so their number has an end."""

    def __init__(self) -> None:
        self.under_way = 0
        self.started = time.time()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, _Histogram] = {}
        self._rows, self._model_seconds = _Histogram(ROWS), _Histogram(SECONDS)
        self._reloads: Counter[str] = Counter()

    def request(self, path: str, status: int, seconds: float) -> None:
        self._requests[path, status] += 1
        found = self._seconds.get(path)
        if found is None:
            found = self._seconds[path] = _Histogram(SECONDS)
        found.add(seconds)

    def batch(self, rows: int, seconds: float) -> None:
        self._rows.add(rows)
        self._model_seconds.add(seconds)

    def reload(self, outcome: str) -> None:
        self._reloads[outcome] += 1

    def text(self, model: str, version: str) -> str:
        return "".join(f"{line}\n" for line in self._lines(model, version))

    def _lines(self, model: str, version: str) -> Iterator[str]:
        yield from _head("model_info", "gauge", "The model that is served.")
        yield f'manyhands_model_info{{model="{model}",version="{version}"}} 1'
        yield from _head("start_time_seconds", "gauge", "When the service began, in seconds since 1970.")
        yield f"manyhands_start_time_seconds {self.started:.3f}"
        yield from _head("requests_under_way", "gauge", "Requests that have come and are not answered yet.")
        yield f"manyhands_requests_under_way {self.under_way}"
        yield from _head("requests_total", "counter", "Requests answered, by path and status.")
        for (path, status), count in sorted(self._requests.items()):
            yield f'manyhands_requests_total{{path="{path}",status="{status}"}} {count}'
        yield from _head("request_seconds", "histogram", "From a request's head to its answer, by path.")
        for path, seconds in sorted(self._seconds.items()):
            yield from seconds.lines("manyhands_request_seconds", f'path="{path}"')
        yield from _head("batch_texts", "histogram", "Texts in a call of the model.")
        yield from self._rows.lines("manyhands_batch_texts")
        yield from _head("model_seconds", "histogram", "Seconds of a call of the model.")
        yield from self._model_seconds.lines("manyhands_model_seconds")
        yield from _head("reloads_total", "counter", "New bundles that were found, by what became of them.")
        for outcome, count in sorted(self._reloads.items()):
            yield f'manyhands_reloads_total{{outcome="{outcome}"}} {count}'


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP manyhands_{name} {text}"
    yield f"# TYPE manyhands_{name} {kind}"
