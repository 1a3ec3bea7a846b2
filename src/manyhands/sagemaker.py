"""Training in a container as SageMaker starts it: what its folders and variables ask ``train`` for.

A job is described by files below ``/opt/ml`` and by variables that begin with ``SM_``; of what both say, the
variables count. Without either, the folders alone do, so that the same container runs anywhere.
"""

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from pydantic import Field

from manyhands.catalog import LEARNERS
from manyhands.data.dataset import is_dataset
from manyhands.data.prepare.prepare import prepare
from manyhands.errors import InputError, UsageError
from manyhands.records import Progress
from manyhands.run.train import Trained
from manyhands.run.train import train as run
from manyhands.settings import OneOf, ReadingSettings, Settings
from manyhands.storage.files import writing
from manyhands.training.checkpoint import checkpoint_folder

BASE_VARIABLE, BASE = "SAGEMAKER_BASE_DIR", "/opt/ml"
TRAIN = ("train", "training")  # the channel's name; SageMaker's own library calls a single one "training"
OF_OTHERS = ("sagemaker_", "_")  # how hyper-parameters begin that SageMaker adds for itself
RENDEZVOUS_PORT = 29400
NAME_SECONDS, ASK_SECONDS = 300.0, 1.0  # names of machines that start together are not known at once
LONGEST_FAILURE = 1024  # of which SageMaker shows no more
METRICS = ("accuracy", "macro_f1", "log_likelihood")


class ContainerSettings(Settings):
    """Hyper-parameters that are no settings of a model, of training, of reading or of a spread."""

    model: Annotated[str, OneOf(LEARNERS), Field(description="Model to train.")] = "ngrams"
    spread: Annotated[
        str | None, Field(description="How the work is shared; by default as the number of hosts asks for.")
    ] = None
    threads: Annotated[int | None, Field(ge=1, description="Threads of a worker.")] = None
    memory: Annotated[str | None, Field(description="Memory to use, like 4GB.")] = None
    overwrite: Annotated[bool, Field(description="Overwrite a model that stands there already.")] = False


@dataclass(frozen=True)
class Container:
    """Where a job's things are, and what it was given."""

    base: Path
    variables: Mapping[str, str]

    @classmethod
    def here(cls) -> "Container":
        return cls(Path(os.environ.get(BASE_VARIABLE, BASE)), os.environ)

    @property
    def model_folder(self) -> Path:
        return Path(self.variables.get("SM_MODEL_DIR", self.base / "model"))

    @property
    def output_folder(self) -> Path:
        return Path(self.variables.get("SM_OUTPUT_DATA_DIR", self.base / "output" / "data"))

    @property
    def checkpoints(self) -> Path:
        """Hosts have folders of their own, as all that they keep is copied to one place."""
        folder = self.base / "checkpoints"
        return folder / self.host if len(self.hosts) > 1 else folder

    @property
    def checkpoint_folder(self) -> Path:
        return checkpoint_folder(str(self.model_folder), str(self.checkpoints))

    @property
    def hosts(self) -> list[str]:
        """All machines of the job, in the same order on each."""
        given = self._variable("SM_HOSTS", self._config("resourceconfig").get("hosts", []))
        return [str(host) for host in given]

    @property
    def host(self) -> str:
        """The name of this machine."""
        known = self._config("resourceconfig").get("current_host", socket.gethostname())
        return self.variables.get("SM_CURRENT_HOST", str(known))

    def hyperparameters(self) -> dict[str, Any]:
        """By the names that Python has for them. Text is left as it is: each setting knows its own type."""
        given = {**self._config("hyperparameters"), **self._variable("SM_HPS", {})}
        return {
            name.replace("-", "_"): _unquoted(value)
            for name, value in given.items()
            if not name.startswith(OF_OTHERS)
        }

    def channel(self, *names: str) -> Path | None:
        """The folder of the first of these channels that there is."""
        for name in names:
            given = self.variables.get(f"SM_CHANNEL_{name.upper()}")
            folder = Path(given or self.base / "input" / "data" / name)
            if given or folder.exists():
                return folder
        return None

    def note_failure(self, sentence: str) -> None:
        """Where SageMaker looks for why a job has failed. Elsewhere, nobody may have made room for it."""
        with suppress(OSError):
            path = self.base / "output" / "failure"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(sentence[:LONGEST_FAILURE], "utf-8")

    def _config(self, name: str) -> dict[str, Any]:
        path = self.base / "input" / "config" / f"{name}.json"
        return _parsed(path.read_text("utf-8"), str(path), {}) if path.is_file() else {}

    def _variable(self, name: str, default: Any) -> Any:
        return _parsed(self.variables[name], name, default) if name in self.variables else default


def train(container: Container, progress: Progress) -> Trained | None:
    """Train as the job says, from its checkpoint if it has one; None where another host writes the model."""
    chosen = container.hyperparameters()
    own = _take(ContainerSettings, chosen)
    reading = _take(ReadingSettings, chosen).model_dump(exclude_unset=True)
    spread, crew = _spread(container, own, chosen)
    with _opened(container, reading, own, progress) as (data, unread):
        trained = run(
            data,
            container.model_folder,
            model=own.model,
            spread=spread,
            resume=True,
            checkpoints=container.checkpoints,
            overwrite=own.overwrite,
            memory=own.memory,
            threads=own.threads or _threads(container, chosen | crew),
            progress=progress,
            **{**crew, **unread, **chosen},
        )
    if trained is not None:
        with writing(str(container.output_folder / "record.json")) as file:
            file.write(json.dumps(trained.record, indent=1).encode())
    return trained


def metric_lines(scores: Mapping[str, Any]) -> Iterator[str]:
    """Validation and test scores of a run, in lines that a regular expression can read.

    >>> list(metric_lines({"valid": [{"epoch": 1, "accuracy": 0.5}], "test": {"accuracy": 0.75, "rows": 8}}))
    ['epoch=1; validation:accuracy=0.500000;', 'test:accuracy=0.750000;']
    """
    for number, epoch in enumerate(scores.get("valid", []), 1):
        yield f"epoch={number}; " + _metrics("validation", epoch)
    if "test" in scores:
        yield _metrics("test", scores["test"])


def _metrics(split: str, scores: Mapping[str, Any]) -> str:
    return " ".join(f"{split}:{name}={scores[name]:.6f};" for name in METRICS if name in scores)


def _take(kind: type[Settings], chosen: dict[str, Any]) -> Any:
    """Those hyper-parameters that are of one kind, checked; the others stay."""
    return kind.create(**{name: chosen.pop(name) for name in kind.model_fields if name in chosen})


def _spread(
    container: Container, own: ContainerSettings, chosen: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """One host trains alone. Several are a crew that meets at the first of them."""
    hosts = container.hosts
    if len(hosts) <= 1:
        return own.spread or "single", {}
    if own.spread not in (None, "allreduce"):
        raise UsageError(
            f"{len(hosts)} hosts train by --spread allreduce; leave out spread, or take one host"
        )
    _wait_for_name(hosts[0])
    crew = {"workers": 1, "nodes": str(len(hosts)), "rendezvous": f"{hosts[0]}:{RENDEZVOUS_PORT}"}
    return "allreduce", {name: value for name, value in crew.items() if name not in chosen}


def _wait_for_name(host: str) -> None:
    deadline = time.monotonic() + NAME_SECONDS
    while True:
        try:
            socket.gethostbyname(host)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise UsageError(f"the first host, {host}, has no address; check the job's hosts") from None
            time.sleep(ASK_SECONDS)


def _threads(container: Container, settings: Mapping[str, Any]) -> int | None:
    """Of each worker; None leaves it to ``train``, which counts the cores itself."""
    cpus, workers = container.variables.get("SM_NUM_CPUS", ""), str(settings.get("workers", 1))
    return max(int(cpus) // max(int(workers), 1), 1) if cpus.isdigit() and workers.isdigit() else None


@contextmanager
def _opened(
    container: Container, reading: dict[str, Any], own: ContainerSettings, progress: Progress
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What to train on, and how it is to be read if it is raw still.

    Files of a validation or a test channel become splits of a dataset, which is prepared for this run.
    """
    data = container.channel(*TRAIN)
    if data is None:
        raise InputError(f"there is no channel train below {container.base}/input/data; give the job one")
    others = {name: container.channel(name) for name in ("validation", "test")}
    extra = {name: folder for name, folder in others.items() if folder is not None}
    if not extra:
        yield str(data), reading
        return
    for name, folder in {"train": data, **extra}.items():
        if is_dataset([str(folder)]):
            raise UsageError(
                f"the channel {name} is a prepared dataset, which holds its own validation and test rows; "
                "give the job a channel train alone, or raw files in all channels"
            )
    with TemporaryDirectory(prefix="manyhands-") as place:
        prepared = prepare(
            data,
            f"{place}/data",
            valid_files=[extra[name] for name in ("validation",) if name in extra],
            test_files=[extra[name] for name in ("test",) if name in extra],
            test=0.0,  # what has no channel is not taken from the rows to train on, but for a few to validate
            memory=own.memory,
            threads=own.threads,
            progress=progress,
            **reading,
        )
        yield str(prepared.folder), {}


def _parsed(text: str, name: str, kind: Any) -> Any:
    """JSON of the same kind as ``kind``."""
    with suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, type(kind)):
            return found
    raise InputError(f"{name} does not hold {'a list' if kind == [] else 'an object'} in JSON")


def _unquoted(value: Any) -> Any:
    """SageMaker's library writes text in JSON's quotation marks, within that of the file.

    >>> _unquoted('"lstm"'), _unquoted("5"), _unquoted(5)
    ('lstm', '5', 5)
    """
    if isinstance(value, str) and value.startswith('"'):
        with suppress(ValueError):
            return json.loads(value)
    return value
