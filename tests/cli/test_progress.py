"""Progress where there is no terminal."""

import pytest

from manyhands.cli import progress
from manyhands.cli.progress import Lines


@pytest.mark.parametrize(
    ("total", "unit", "said"),
    [
        (15_600, "rows", "epoch: 2.8 k of 15.6 k rows, "),
        (None, "rows", "epoch: 2.8 k rows, "),
        (1_500_000, "B", "epoch: 2.8 kB of 1.5 MB, "),
        (2_801, "blocks", "epoch: 2.8 k of 2.8 k blocks, "),
    ],
)
def test_a_line_names_the_unit_once(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    total: int | None,
    unit: str,
    said: str,
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    lines = Lines()
    lines.stage("epoch", total, unit)
    lines.advance(2_800)
    assert capsys.readouterr().err.startswith(said)
