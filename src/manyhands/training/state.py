"""How long to learn, and how far a run has come."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from manyhands.errors import InputError
from manyhands.models.learner import Learner, Loss, arrays_of
from manyhands.models.model import Arrays
from manyhands.training.schedule import Schedule

NOTHING = Loss(0.0, 0.0)
APART = ("best", "owed", "whole", "left")  # not among the facts of a state


Validate = Callable[[], dict[str, float]]
LESS_IS_BETTER = "log_loss"  # of all scores, the only one


def worth(scores: dict[str, Any], judged_by: str) -> float:
    """How good scores are, by one of them: more is better, whatever it is."""
    value = scores.get(judged_by)
    if value is None:
        return float("-inf")
    return float(-value if judged_by == LESS_IS_BETTER else value)


@dataclass(frozen=True)
class Plan:
    """How long and how fast to learn."""

    epochs: int
    schedule: Schedule
    seed: int
    threads: int
    patience: int
    judged_by: str = "accuracy"


@dataclass
class State:
    """How far training has come: with the learner's weights, all that is needed to go on."""

    run: str = ""  # the name of the run, the same however often a crew begins again
    epoch: int = 0
    round: int = 0
    seen: int = 0
    seconds: float = 0.0
    spent: float = 0.0  # dollars, by all parts of the run, where the price of an hour is known
    loss: Loss = NOTHING
    history: list[dict[str, Any]] = field(default_factory=list)
    laps: list[dict[str, Any]] = field(default_factory=list)  # where the time of each epoch went
    # Of a spread whose workers do not go through epochs in order: what is learnt of those that are not over,
    # each piece by its epoch, its block, and the rows from where to where.
    learnt: list[list[int]] = field(default_factory=list)
    ahead: list[list[float]] = field(default_factory=list)  # losses of later epochs: epoch, total, rows
    best_epoch: int = 0
    best: Arrays = field(default_factory=dict)
    owed: Arrays = field(default_factory=dict)  # to the weights, by a spread that merges what workers learnt
    whole: bool = True  # False inside a round, when the weights are ahead of what is said here
    left: int = 1  # rounds until the epoch is judged

    def facts(self) -> dict[str, Any]:
        """All but the arrays, as JSON has it."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in APART}

    def take(self, facts: dict[str, Any], best: Arrays, owed: Arrays) -> None:
        """The opposite of ``facts``; checkpoints of old have no price."""
        facts = {"spent": 0.0, **facts}
        for f in fields(self):
            if f.name not in APART:
                setattr(self, f.name, facts[f.name])
        self.loss, self.best, self.owed = Loss(*facts["loss"]), best, owed

    def done(self, plan: Plan) -> bool:
        patient = not self.best_epoch or self.epoch - self.best_epoch < plan.patience
        return self.epoch >= plan.epochs or not patient

    def add(self, loss: Loss, unit: str) -> None:
        """Add the loss of a round to that of the epoch."""
        total = self.loss.total + loss.total
        if not np.isfinite(total):
            raise InputError(
                f"the loss became {total} in epoch {self.epoch + 1}, step {self.round + 1}, "
                f"after {self.seen:,} {unit}; lower --learning-rate"
            )
        self.loss = Loss(total, self.loss.rows + loss.rows)

    def end_epoch(
        self,
        learner: Learner,
        plan: Plan,
        scores: dict[str, float],
        lap: dict[str, Any],
        *,
        copy: bool = True,
    ) -> None:
        """Write down how the epoch went, and ``copy`` its weights if none was better."""
        so_far = {"rounds": self.round, "seen": self.seen, "learning_seconds": round(self.seconds, 3)}
        self.laps.append({**so_far, **lap})
        self.epoch += 1
        self.round = 0
        self.history.append(
            {"epoch": self.epoch, "loss": self.loss.mean, "examples": self.loss.rows, **scores}
        )
        self.loss = NOTHING
        judged = [worth(epoch, plan.judged_by) for epoch in self.history]
        if scores and judged[-1] > max(judged[:-1], default=float("-inf")):
            self.best_epoch = self.epoch
            self.best = {name: array.copy() for name, array in arrays_of(learner).items()} if copy else {}
