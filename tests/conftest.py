"""What the tests share. A test that lacks a part it needs skips; in CI that is a failure."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

from tests.warm import Warm

settings.register_profile("default", deadline=None, max_examples=60)
settings.load_profile("default")

NEEDS = "needs "
SECONDS = 500  # that a call of the command line may take
SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


def need(part: str, found: object) -> None:
    """Skip unless ``found``; the reason is printed at the end of the run."""
    if not found:
        pytest.skip(NEEDS + part)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start other processes take longest, so they come first: none is left alone at the end."""
    items.sort(key=lambda item: not {"integration", "golden", "contracts", "spread"} & {*item.path.parts})


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    outcome = yield
    report = outcome.get_result()
    reason = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    if os.environ.get("CI") == "true" and NEEDS in reason:
        report.outcome = "failed"
        report.longrepr = f"{reason} (a missing part is a failure in CI)"


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    server = Warm()
    yield server
    server.close()


@pytest.fixture
def manyhands(warm: Warm, tmp_path: Path) -> Callable[..., Outcome]:
    """Run the command line as a user does, in the test's own folder."""

    def run(*arguments: object, stdin: bytes = b"", env: dict[str, str] | None = None) -> Outcome:
        words = [*map(str, arguments)]
        if env is None:
            return Outcome(*warm.call(words, stdin, tmp_path, SECONDS))
        done = subprocess.run(  # what is in the environment may matter to imports
            [sys.executable, "-m", "manyhands", *words],
            input=stdin,
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, **env},
            timeout=SECONDS,
            check=False,
        )
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def real_data() -> Path:
    """Real reviews that are too large, or not ours, to stand in the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"the real review files are not here (looked in {SHARED_DATA})")
    return SHARED_DATA


def write_jsonl(path: Path, rows: Iterable[tuple[str, object]]) -> Path:
    """Reviews in Amazon's layout: (text, stars)."""
    lines = (json.dumps({"reviewText": text, "overall": stars}, ensure_ascii=False) for text, stars in rows)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def reviews(count: int) -> list[tuple[str, float]]:
    """Distinct little reviews."""
    return [(f"Review number {n}: good, not {n % 7} bad.", float(1 + n % 5)) for n in range(count)]
