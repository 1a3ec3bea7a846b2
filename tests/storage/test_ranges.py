"""Ranges of a file: wherever they are cut, every line comes once, and whole."""

from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manyhands.storage.files import expand
from manyhands.storage.ranges import InputRange

lines = st.lists(st.sampled_from(["", "a", "bc\r", "a longer line than the others", "é"]), max_size=12)


def read(path: Path, start: int, end: int, step: int) -> tuple[bytes, int]:
    stream = InputRange(expand([str(path)])[0], start, end)
    assert stream.head() == path.read_bytes()
    out, nothing = b"", np.empty(0, np.uint8)
    while len(chunk := stream.read_behind(nothing, step)):
        out += chunk.tobytes()
    assert not len(stream.read_behind(nothing, step))
    stream.close()
    return out, stream.lines


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines, st.booleans(), st.lists(st.integers(0, 120), max_size=5), st.integers(1, 40))
def test_every_line_once(tmp_path: Path, rows: list[str], ended: bool, cuts: list[int], step: int) -> None:
    data = "\n".join(rows).encode() + b"\n" * ended
    path = tmp_path / "lines"
    path.write_bytes(data)
    bounds = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    found = [read(path, *bound, step) for bound in pairwise(bounds)]
    assert b"".join(part for part, _ in found) == data
    for part, count in found[:-1]:
        assert part.endswith(b"\n") or not part or data.endswith(part)  # the last line may have no end
        assert count == part.count(b"\n")
    for (part, _), start in zip(found, bounds, strict=False):  # a line is where its first byte is
        at = data.find(part)
        assert not part or at >= start or data.find(part, at + 1) >= 0
