"""What people read is up to date: generated pages, the tree in the README, commands, options and paths."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from manyhands.cli.main import VERBS, build

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "manyhands"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "deploy" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCED = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?:^|\| )manyhands ([a-z].*)")
OPTIONS = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
OF_OTHERS = {  # of torchrun, spark-submit, TensorBoard, Ray, iptables, Docker, AWS, kubectl and pip
    *("--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint", "--deploy-mode", "--logdir"),
    *("--head", "--port", "--include-dashboard", "--dport", "--ctstate"),
    *("--node-manager-port", "--object-manager-port", "--runtime-env-agent-port", "--metrics-export-port"),
    *("--dashboard-agent-listen-port", "--min-worker-port", "--max-worker-port"),
    *("--tag", "--build-arg", "--volume", "--publish", "--user", "--filename", "--no-deps"),
    *("--cli-input-json", "--cluster-id", "--steps"),
}
PATHS = re.compile(r"`((?:src/manyhands|tests|bench|tools|docs)/[\w/.-]+)`")
MODULES = re.compile(r"`(?:manyhands\.)((?:[a-z_]+\.)*[a-z_]+)")
LINKS = re.compile(r"\]\(([^)#:]+)(?:#[\w-]+)?\)")


def test_reference_and_tables_are_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "make_reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tree_in_the_readme_names_every_package() -> None:
    readme = (ROOT / "README.md").read_text()
    packages = [path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE]
    names = [f"{package.name}/" for package in packages]
    names += [path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")]
    assert [name for name in names if not re.search(rf"^ +{re.escape(name)} ", readme, re.MULTILINE)] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 200


def commands() -> list[tuple[str, list[str]]]:
    """Every command line of manyhands that stands in a page, with the page's name."""
    blocks = [(page.name, block) for page in PAGES for block in FENCED.findall(page.read_text())]
    lines = [(name, line) for name, block in blocks for line in block.replace("\\\n", " ").splitlines()]
    found = [(name, match[1]) for name, line in lines if (match := COMMAND.search(line))]
    return [(name, shlex.split(words, comments=True)) for name, words in found]


@pytest.mark.parametrize(("page", "arguments"), commands(), ids=lambda value: str(value)[:60])
def test_commands_in_pages_have_options_that_exist(page: str, arguments: list[str]) -> None:
    verb = arguments[0]
    assert verb in VERBS, f"{page}: there is no command {verb}"
    command = get_command(build(arguments))
    params = command.commands[verb].params  # type: ignore[attr-defined]
    known = {flag for param in params for flag in (*param.opts, *param.secondary_opts)}
    given = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    assert given <= known | {"--help"}, f"{page}: {verb} has no {', '.join(given - known)}"


def test_options_in_prose_exist() -> None:
    known = set(OPTIONS.findall((ROOT / "docs" / "reference" / "cli.md").read_text())) | OF_OTHERS
    unknown = {(page.name, flag) for page in PAGES for flag in OPTIONS.findall(page.read_text())}
    assert {(name, flag) for name, flag in unknown if flag not in known} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_in_pages_exist(page: Path) -> None:
    text = page.read_text()
    for name in PATHS.findall(text):
        assert (ROOT / name).exists(), f"{page.name}: there is no {name}"
    for name in LINKS.findall(text):
        assert (page.parent / name).exists(), f"{page.name}: there is no {name}"
    for name in MODULES.findall(text):
        first = name.split(".")[0]
        if (PACKAGE / first).is_dir() and "." in name:
            place = PACKAGE / Path(*name.split(".")[:2])
            assert place.is_dir() or place.with_suffix(".py").exists(), f"{page.name}: there is no {name}"
