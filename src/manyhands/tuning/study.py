"""The trials of a search, kept in a file while they are made: optuna chooses what to try next."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.errors import InputError, UsageError, missing_extra
from manyhands.settings import Search
from manyhands.training.state import LESS_IS_BETTER, worth

JOURNAL = "journal.log"
DRAWS = 50  # before a search is over because it meets nothing but what was tried


@dataclass(frozen=True)
class Trial:
    """Settings and what came of them; no score where training failed."""

    settings: dict[str, Any]
    score: float | None
    seconds: float
    error: str = ""


class Study:
    """All trials of one search, those of earlier runs first.

    A failure is only remembered as long as this run lasts: with more memory it may be none.
    """

    def __init__(self, journal: Any, ranges: dict[str, Search], seed: int, measure: str = "accuracy") -> None:
        self._journal = journal
        self._seed = seed
        self._measure = measure
        self._distributions = {name: _distribution(found) for name, found in ranges.items()}
        self.trials = [
            Trial(trial.params, trial.value, trial.user_attrs["seconds"])
            for trial in journal.trials
            if trial.value is not None
        ]

    @property
    def best(self) -> Trial | None:
        """The earliest of the best."""
        scored = [trial for trial in self.trials if trial.score is not None]
        return max(scored, key=lambda trial: worth({self._measure: trial.score}, self._measure), default=None)

    def suggest(self) -> dict[str, Any] | None:
        """Settings to try next, None if nothing new can be found."""
        for draw in range(DRAWS):
            settings = self._draw(draw)
            if all(settings != trial.settings for trial in self.trials):
                return settings
        return None

    def _draw(self, draw: int) -> dict[str, Any]:
        """By (seed, trials so far, draw) and nothing else: a search taken up again goes on as it would have.

        It is drawn beside the journal, which only ever holds trials that are over.
        """
        optuna = _optuna()
        (seed,) = np.random.SeedSequence([self._seed, len(self.trials), draw]).generate_state(1)
        sampler = optuna.samplers.TPESampler(seed=int(seed))
        beside = optuna.create_study(direction=_direction(self._measure), sampler=sampler)
        beside.add_trials([self._finished(trial) for trial in self.trials])
        found = beside.ask(self._distributions).params
        # Three digits are easier to copy, and no score depends on the fourth.
        return {
            name: float(f"{value:.3g}") if isinstance(value, float) else value
            for name, value in found.items()
        }

    def add(self, trial: Trial) -> None:
        self.trials.append(trial)
        if trial.score is not None:
            self._journal.add_trial(self._finished(trial))

    def _finished(self, trial: Trial) -> Any:
        states = _optuna().trial.TrialState
        return _optuna().trial.create_trial(
            state=states.PRUNED if trial.score is None else states.COMPLETE,
            value=trial.score,
            params=trial.settings,
            distributions=self._distributions,
            user_attrs={"seconds": trial.seconds},
        )


def _distribution(found: Search) -> Any:
    distributions = _optuna().distributions
    whole = isinstance(found.low, int)
    kind = distributions.IntDistribution if whole else distributions.FloatDistribution
    return kind(found.low, found.high, log=found.log)


@contextmanager
def open_study(
    folder: Path, name: str, ranges: dict[str, Search], seed: int, measure: str = "accuracy"
) -> Iterator[Study]:
    """The study of this name in the journal of ``folder``, for this process alone."""
    optuna = _optuna()
    folder.mkdir(parents=True, exist_ok=True)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with _locked(folder):
            yield Study(_journal(folder / JOURNAL, name, measure), ranges, seed, measure)
    finally:
        optuna.logging.set_verbosity(verbosity)


def _journal(path: Path, name: str, measure: str) -> Any:
    optuna = _optuna()
    Path(f"{path}.lock").unlink(missing_ok=True)  # the folder is ours: its run was killed
    _cut_torn_line(path)
    try:
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
        return optuna.create_study(
            storage=storage, study_name=name, direction=_direction(measure), load_if_exists=True
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is damaged ({str(error).splitlines()[0]}); remove it and tune again"
        ) from None


def _direction(measure: str) -> str:
    return "minimize" if measure == LESS_IS_BETTER else "maximize"


def _cut_torn_line(path: Path) -> None:
    """Remove what a killed run wrote only in part: the next line would be joined to it."""
    if path.is_file():
        data = path.read_bytes()
        os.truncate(path, data.rfind(b"\n") + 1)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another run is tuning with {folder}; wait for it, or choose another --out"
            ) from None
        yield
    finally:
        os.close(lock)


def _optuna() -> Any:
    try:
        import optuna  # noqa: PLC0415
    except ImportError:
        raise missing_extra("optuna", "tune") from None
    return optuna
