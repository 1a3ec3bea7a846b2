"""The steps of the Dockerfile without Docker, and a training job in what they make.

Needs root. Each stage is this machine's system with a layer above it, in which all that is written stays
(overlayfs, in a mount namespace of its own), and the steps run there with a clean environment. That is not
the base image, so what that lacks is not noticed; but what is built, copied and installed is what the image
gets.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from measure import save

ROOT = Path(__file__).parents[1]
INSIDE = "MANYHANDS_INSIDE"
DEVICES = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}
NO_STEPS = ("LABEL", "EXPOSE", "CMD")
ROWS = 2000


@dataclass
class Stage:
    """A system that is being made: its root, and what instructions have set so far."""

    place: Path
    variables: dict[str, str]
    folder: str = "/"
    user: str = "root"
    entrypoint: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.place / "merged"

    @property
    def layer(self) -> Path:
        return self.place / "layer"

    def run(self, command: list[str], **rest: Any) -> subprocess.CompletedProcess[bytes]:
        inside = f"cd {shlex.quote(self.folder)} && exec {shlex.join(command)}"
        start = ["chroot", f"--userspec={self.user}", str(self.root), "sh", "-c", inside]
        return subprocess.run(start, env=self.variables, check=True, **rest)

    def at(self, name: str) -> Path:
        return self.root / os.path.normpath(os.path.join(self.folder, name)).lstrip("/")  # noqa: PTH118


def instructions(text: str) -> list[tuple[str, str]]:
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines.splitlines() if line.strip()]


def begin(place: Path) -> Stage:
    """This system, without what it has in its variables but for where packages come from."""
    for name in ("layer", "work", "merged"):
        (place / name).mkdir(parents=True)
    layers = f"lowerdir=/,upperdir={place}/layer,workdir={place}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, f"{place}/merged"], check=True)
    subprocess.run(["mount", "-t", "proc", "proc", f"{place}/merged/proc"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", f"{place}/merged/dev"], check=True)
    for device, number in DEVICES.items():
        os.mknod(place / "merged" / "dev" / device, 0o666 | stat.S_IFCHR, os.makedev(1, number))
        (place / "merged" / "dev" / device).chmod(0o666)
    (place / "merged" / "dev" / "shm").mkdir(mode=0o1777)
    base = Path(sys.base_prefix)
    for parent in (base, *base.parents):  # Python may be in a home folder here; in the image, all may use it
        inside = place / "merged" / str(parent).lstrip("/")
        inside.chmod(inside.stat().st_mode | 0o055)
    packages = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    return Stage(
        place, {**packages, "PATH": f"{base}/bin:/usr/local/bin:/usr/bin:/usr/sbin:/bin", "HOME": "/root"}
    )


def let_through(path: str) -> bool:
    """Whether .dockerignore leaves a file in: of the rules that fit, the last counts."""
    kept = True
    for rule in (ROOT / ".dockerignore").read_text().split("\n"):
        pattern = rule.lstrip("!").removeprefix("**/")
        parts = [*Path(path).parts] if rule.startswith("**/") else [path]
        fits = any(fnmatch(part, pattern) or part.startswith(f"{pattern}/") for part in parts)
        if pattern and not rule.startswith("#") and fits:
            kept = rule.startswith("!")
    return kept


def copy(stage: Stage, words: list[str], stages: dict[str, Stage]) -> None:
    origin = stages[words.pop(0).partition("=")[2]] if words[0].startswith("--from=") else None
    *sources, target = words
    for source in sources:
        found = origin.at(source) if origin else ROOT / source
        goal = stage.at(target)
        goal = goal / found.name if found.is_file() else goal
        goal.parent.mkdir(parents=True, exist_ok=True)
        if origin:
            subprocess.run(["cp", "--archive", str(found), str(goal)], check=True)
        for file in [] if origin else [found] if found.is_file() else found.rglob("*"):
            if file.is_file() and let_through(str(file.relative_to(ROOT))):
                place = goal if found.is_file() else goal / file.relative_to(found)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, place)


def build(place: Path, chosen: dict[str, str]) -> tuple[Stage, list[dict[str, Any]]]:
    """All stages; the last one, and what each step took."""
    stages: dict[str, Stage] = {}
    steps: list[dict[str, Any]] = []
    stage: Stage | None = None
    for word, rest in instructions((ROOT / "Dockerfile").read_text()):
        if word == "FROM":
            stage = begin(place / str(len(stages)))
            stages[rest.partition(" AS ")[2] or str(len(stages))] = stage
        elif stage is not None and word not in NO_STEPS:
            step(stage, word, rest, stages, chosen, steps)
    assert stage is not None
    return stage, steps


def step(
    stage: Stage,
    word: str,
    rest: str,
    stages: dict[str, Stage],
    chosen: dict[str, str],
    steps: list[dict[str, Any]],
) -> None:
    began = time.monotonic()
    filled = re.sub(r"\$\{?(\w+)\}?", lambda match: stage.variables.get(match[1], ""), rest)
    if word == "RUN":
        stage.run(["sh", "-ec", rest])
        steps.append({"step": " ".join(rest.split()), "seconds": round(time.monotonic() - began, 1)})
        print(steps[-1], flush=True)
    elif word == "COPY":
        copy(stage, rest.split(), stages)
    elif word == "WORKDIR":
        stage.folder = rest
        stage.at(".").mkdir(parents=True, exist_ok=True)
    elif word in ("ENV", "ARG"):
        pairs = [pair.partition("=") for pair in shlex.split(filled)]
        given = {name: chosen.get(name, value) for name, equals, value in pairs if equals or name in chosen}
        stage.variables.update(given)
    elif word == "USER":
        stage.user = filled
        stage.variables["HOME"] = f"/home/{filled}"
    elif word == "ENTRYPOINT":
        stage.entrypoint = json.loads(rest)
    else:
        raise SystemExit(f"this script does not know {word}")


def try_job(stage: Stage) -> dict[str, Any]:
    """Train as SageMaker has it, and use the model."""
    job = stage.at("/opt/ml")
    program = stage.entrypoint
    (job / "input" / "config").mkdir(parents=True)
    (job / "input" / "config" / "hyperparameters.json").write_text('{"epochs": "3"}')
    stage.user, user = "root", stage.user
    sample = ["sample", "--rows", str(ROWS), "--out", "/opt/ml/input/data/train/reviews.jsonl"]
    stage.run([*program, *sample], stdout=subprocess.DEVNULL)
    stage.user = user
    began = time.monotonic()
    said = stage.run([*program, "train"], stdout=subprocess.PIPE).stdout.decode()
    seconds = round(time.monotonic() - began, 1)
    record = json.loads((job / "output" / "data" / "record.json").read_text())
    predict = [*program, "predict", "/opt/ml/model"]
    label = stage.run(predict, input=b"a very good book\n", stdout=subprocess.PIPE).stdout.decode().strip()
    return {
        "user": user,
        "rows": record["data"]["rows"],
        "examples_seen": record["examples_seen"],
        "seconds": seconds,
        "compiled_kernels": record["compiled"],
        "said": said.splitlines()[:3],
        "predicted": label,
    }


def megabytes(folder: Path) -> int:
    return int(subprocess.check_output(["du", "--summarize", "--block-size=1M", str(folder)]).split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extras", default="s3,serve", help="as the build argument EXTRAS")
    chosen = parser.parse_args()
    if INSIDE not in os.environ:
        again = ["unshare", "--mount", sys.executable, *sys.argv]
        sys.exit(subprocess.run(again, env={**os.environ, INSIDE: "1"}, check=False).returncode)
    place = Path(tempfile.mkdtemp())
    try:
        stage, steps = build(place, {"EXTRAS": chosen.extras})
        installed = stage.at("/opt/manyhands")
        facts = {
            "extras": chosen.extras,
            "steps": steps,
            "installed_mb": megabytes(installed),
            "kernel_libraries": len([*installed.glob("lib/*/site-packages/manyhands/kernels/compiled/*.so")]),
            "job": try_job(stage),
        }
        print(json.dumps(facts, indent=1))
        save("container", facts)
    finally:
        for root in place.glob("*/merged"):
            subprocess.run(["umount", "--recursive", str(root)], check=False)
        if not any(root.is_mount() for root in place.glob("*/merged")):  # else there is more than ours below
            shutil.rmtree(place)


if __name__ == "__main__":
    main()
