"""The ``manyhands-container`` program: what a container runs.

With ``train`` or ``serve`` alone it does what SageMaker asks of a container; any other arguments are those of
``manyhands``.
"""

import os
import re
import sys
from typing import TYPE_CHECKING

import typer

from manyhands.cli import interrupt
from manyhands.cli.main import attempt, run_program
from manyhands.cli.progress import watch

if TYPE_CHECKING:
    from manyhands.records import Progress
    from manyhands.sagemaker import Container

EPOCH, LOSS = re.compile(r"epoch (\d+) of "), re.compile(r"loss ([0-9.]+)")
PORT_VARIABLE, PORT = "SAGEMAKER_BIND_TO_PORT", "8080"


def run() -> None:
    """Run as the arguments say, and exit with the code that tells what happened."""
    if sys.argv[1:] == ["train"]:
        run_program(train_as_asked)
    elif sys.argv[1:] == ["serve"]:
        _serve()
    else:
        from manyhands.cli.main import run as manyhands

        manyhands()


def _serve() -> None:
    """The service takes the place of this process, and with it the signals that the container is sent."""
    from manyhands.sagemaker import Container

    service = ["serve", str(Container.here().model_folder), "--host", "0.0.0.0"]  # noqa: S104 - as SageMaker asks
    service += ["--port", os.environ.get(PORT_VARIABLE, PORT)]
    os.execv(sys.executable, [sys.executable, "-m", "manyhands", *service])  # noqa: S606


def train_as_asked() -> int:
    """Train as the job's folders and variables say; the exit code."""
    from manyhands.sagemaker import Container

    container = Container.here()
    ended = attempt(lambda: _train_in(container))
    if ended.code and not interrupt.asked():  # SageMaker starts a job that was interrupted again by itself
        container.note_failure(ended.message)
    return ended.tell()


def _train_in(container: "Container") -> int:
    from manyhands.sagemaker import metric_lines, train

    with interrupt.resumable(container.checkpoint_folder), watch() as progress:
        lines = EpochLines(progress)
        trained = train(container, lines)
    if trained is None:
        typer.echo("trained; another host wrote the model")
        return 0
    scores = trained.record["scores"]
    for epoch in scores["train"]:
        lines.tell(epoch["epoch"], f"{epoch['loss']:.4f}")
    for line in metric_lines(scores):
        typer.echo(line)
    return 0


class EpochLines:
    """Passes progress on, and prints a line with the loss when an epoch is over."""

    def __init__(self, progress: "Progress") -> None:
        self._progress, self.say = progress, progress.say
        self._epoch, self._loss = 0, ""
        self._told: set[int] = set()

    def stage(self, name: str, total: int | None, unit: str) -> None:
        if self._loss:
            self.tell(self._epoch, self._loss)
        found = EPOCH.match(name)
        self._epoch, self._loss = int(found[1]) if found else 0, ""
        self._progress.stage(name, total, unit)

    def advance(self, done: int, note: str = "") -> None:
        found = LOSS.search(note)
        if self._epoch and found:
            self._loss = found[1]
        self._progress.advance(done, note)

    def tell(self, epoch: int, value: str) -> None:
        """Once for each epoch."""
        if epoch not in self._told:
            self._told.add(epoch)
            typer.echo(f"epoch={epoch}; train:loss={value};")


if __name__ == "__main__":
    run()
