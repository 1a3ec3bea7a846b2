"""The search itself, where the best is known."""

from pathlib import Path

import numpy as np
import pytest

from manyhands.settings import Search
from manyhands.tuning.study import Trial, open_study

optuna = pytest.importorskip("optuna", reason="needs optuna")


def test_a_search_comes_near_the_best(tmp_path: Path) -> None:
    """On a hill of known height, thirty trials find what ten at random seldom do."""
    ranges = {"learning_rate": Search(0.01, 100.0, log=True), "epochs": Search(1, 20)}
    before = optuna.logging.get_verbosity()
    with open_study(tmp_path, "hill", ranges, seed=0) as study:
        for _ in range(30):
            settings = study.suggest()
            height = (
                1 - (np.log10(settings["learning_rate"]) - 1) ** 2 / 9 - ((settings["epochs"] - 7) / 20) ** 2
            )
            study.add(Trial(settings, float(height), 0.0))
        assert study.best.score > 0.98
    assert optuna.logging.get_verbosity() == before
