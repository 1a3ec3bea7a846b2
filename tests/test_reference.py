"""Pages that are drawn from other sources are up to date."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_reference_and_tables_are_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "make_reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tree_in_the_readme_names_every_module() -> None:
    readme = (ROOT / "README.md").read_text()
    skipped = {"__init__.py", "__main__.py"}
    for path in (ROOT / "src" / "manyhands").glob("*.py"):
        assert path.name in readme or path.name in skipped, path
    for room in ("data", "data/sources", "text", "storage", "train", "spread", "evaluate"):
        for path in (ROOT / "src" / "manyhands" / room).glob("*.py"):
            assert path.name in readme or path.name in skipped, path
