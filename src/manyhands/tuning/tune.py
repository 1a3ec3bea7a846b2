"""``tune``: search the settings of a model for those that do best on rows it is not trained on.

The first trial is the model's own defaults, so a search never ends with less. Test rows take no
part: they are only looked at when the final model is written, as by ``train``.
"""

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.bundle.bundle import BUNDLE, Bundle, save_bundle
from manyhands.bundle.card import model_card
from manyhands.bundle.quantize import quantize
from manyhands.errors import UsageError
from manyhands.machine import parse_size, resources_for
from manyhands.records import Progress, Silent
from manyhands.run.train import Trained, train
from manyhands.storage.destination import destination
from manyhands.storage.files import StrPath, cache_folder, cannot_write
from manyhands.tuning.search import Tuning
from manyhands.tuning.study import Study, Trial, open_study

SHARES = ("accuracy", "f1")  # what scores are called that are shares of rows, or nearly
TRAINED = ".trained"  # inside the destination, which leaves behind what begins with a dot


@dataclass(frozen=True)
class Tuned:
    """The outcome of a search: ``train(data, out, model=model, **settings)`` makes the best model."""

    model: str
    settings: dict[str, Any]
    measure: str
    score: float
    default_score: float | None
    trials: list[Trial]
    valid_rows: int  # or pairs of words, where sets of these were judged by
    seconds: float
    size_bytes: int | None = None
    bundle: Bundle | None = None

    @property
    def chance(self) -> float | None:
        """Scores that differ by less may do so by chance: two standard errors of a share of so many rows.

        None where the score is no share.
        """
        if not self.measure.partition(":")[0].endswith(SHARES):
            return None
        return 2 * math.sqrt(self.score * (1 - self.score) / self.valid_rows)

    def facts(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {
            "model": self.model,
            "settings": self.settings,
            "measure": self.measure,
            "score": self.score,
            "default_score": self.default_score,
            "valid_rows": self.valid_rows,
            "chance": None if self.chance is None else round(self.chance, 4),
            "size_bytes": self.size_bytes,
            "seconds": round(self.seconds, 3),
            "trials": [asdict(trial) for trial in self.trials],
            "out": str(self.bundle.folder) if self.bundle else None,
        }


def tune(
    data: StrPath | Sequence[StrPath],
    *,
    minutes: float = 5.0,
    model: str = "ngrams",
    size: str | int | None = None,
    sets: StrPath | None = None,
    out: StrPath | None = None,
    trials: int | None = None,
    seed: int = 0,
    memory: int | str | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    **fixed: Any,
) -> Tuned:
    """Try settings for so many minutes, or until there are so many trials; write the best model to ``out``.

    Settings in ``fixed`` are not searched. With ``size``, models are judged as they are when they
    are quantised to that many bytes. Word vectors are judged by how likely they find the validation rows, or
    by the similarity sets in the folder ``sets``. Of raw files, a tenth of the rows is held out to judge by,
    and the best settings are trained on all of them. The same search started again goes on from its finished
    trials.
    """
    began = time.monotonic()
    _check(minutes, trials)
    size_bytes = None if size is None else parse_size(size)
    fixed = {**fixed, **({"seed": seed} if seed else {})}
    place = os.fspath(out) if out is not None else None
    watcher = progress or Silent()
    names = [data] if isinstance(data, str | os.PathLike) else data
    search = Tuning(
        tuple(os.fspath(name) for name in names),
        model,
        fixed,
        size_bytes,
        None if sets is None else os.fspath(sets),
        resources_for(memory, threads),
        watcher,
    )
    with destination(place, overwrite, BUNDLE) if place else nullcontext() as folder:
        with _study(search, place, seed) as study:
            search.run(study, began + minutes * 60, trials, watcher)
            tuned = _outcome(search, study, time.monotonic() - began)
        if folder is None or place is None:
            return tuned
        bundle = _write(search, tuned, folder, memory, threads, watcher)
    return replace(tuned, bundle=replace(bundle, folder=Path(place)), seconds=time.monotonic() - began)


def _check(minutes: float, trials: int | None) -> None:
    if not (math.isfinite(minutes) and minutes >= 0):
        raise UsageError(f"--minutes must be 0 or more, not {minutes:g}")
    if trials is not None and trials < 1:
        raise UsageError(f"--trials must be 1 or more, not {trials}")


def _outcome(search: Tuning, study: Study, seconds: float) -> Tuned:
    best = study.best
    if best is None or best.score is None:
        raise UsageError(
            f"none of {len(study.trials)} settings could be trained; first: {study.trials[0].error}"
        )
    default = [trial.score for trial in study.trials if trial.settings == search.defaults]
    return Tuned(
        model=search.model,
        settings={**search.fixed, **best.settings},
        measure=search.measure,
        score=best.score,
        default_score=default[0] if default else None,
        trials=study.trials,
        valid_rows=search.judged_rows,
        seconds=seconds,
        size_bytes=search.size_bytes,
    )


@contextmanager
def _study(search: Tuning, out: str | None, seed: int) -> Iterator[Study]:
    folder = _folder(search, out)
    try:
        with open_study(folder, search.name, search.ranges, seed, search.measure) as study:
            yield study
    except OSError as error:
        raise cannot_write(str(folder), error) from None


def _folder(search: Tuning, out: str | None) -> Path:
    """Beside a local bundle; in the user's cache if there is none, or if it will stand elsewhere."""
    if out is not None:
        filesystem, path = url_to_fs(out)
        if isinstance(filesystem, LocalFileSystem):
            final = Path(path).resolve()
            return final.parent / f".{final.name}.tune"
    return cache_folder("tuning") / search.fingerprint


def _write(
    search: Tuning,
    tuned: Tuned,
    folder: Path,
    memory: int | str | None,
    threads: int | None,
    progress: Progress,
) -> Bundle:
    """Train with the best settings, and put the outcome into ``folder``."""
    trained = train(  # by one process, so what comes of it is here
        list(search.data),
        folder / TRAINED,
        model=search.model,
        memory=memory,
        threads=threads,
        progress=progress,
        **tuned.settings,
    )
    bundle, record = cast(Trained, trained).bundle, cast(Trained, trained).record
    record["tuned"] = {"trials": len(tuned.trials), "measure": tuned.measure, "score": tuned.score}
    if tuned.size_bytes is None:
        vocabulary = bundle.vocabulary if bundle.has_vocabulary else None
        save_bundle(folder, bundle, vocabulary, model_card(bundle.config, record), record)
        return bundle
    bundle = quantize(bundle, tuned.size_bytes)
    record["tuned"]["size_bytes"] = tuned.size_bytes
    if search.rows.dataset is not None:  # of raw files, the rows held out were trained on in the end
        record["scores"].pop(
            "best_epoch", None
        )  # what follows is of the model that is written, not of an epoch
        record["scores"]["valid"] = [search.judged(bundle, search.rows.valid).scores]
    scores, details = search.judged(bundle, search.rows.test(labelled=True))
    if scores:
        record["scores"]["test"], record["evaluation"] = scores, details
    save_bundle(folder, bundle, None, model_card(bundle.config, record), record)
    return bundle
