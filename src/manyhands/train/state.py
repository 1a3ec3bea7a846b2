"""How long to learn, and how far a run has come."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from manyhands.models.learner import Arrays, Loss
from manyhands.train.schedule import Schedule

NOTHING = Loss(0.0, 0.0)
APART = ("best", "velocity", "whole")  # not among the facts of a state


Validate = Callable[[], dict[str, float]]


@dataclass(frozen=True)
class Plan:
    """How long and how fast to learn. ``turn`` is what an epoch of the loop is called."""

    epochs: int
    schedule: Schedule
    seed: int
    threads: int
    patience: int
    judged_by: str = "accuracy"
    turn: str = "epoch"
    round_blocks: int = 32  # of learners that learn in place; the others exchange after every block


@dataclass
class State:
    """How far training has come: with the learner's weights, all that is needed to go on."""

    run: str = ""  # the name of the run, the same however often a crew begins again
    epoch: int = 0
    round: int = 0
    seen: int = 0
    seconds: float = 0.0
    loss: Loss = NOTHING
    history: list[dict[str, Any]] = field(default_factory=list)
    laps: list[dict[str, Any]] = field(default_factory=list)  # where the time of each epoch went
    best_epoch: int = 0
    best: Arrays = field(default_factory=dict)
    velocity: Arrays = field(default_factory=dict)  # of an average that has momentum
    whole: bool = True  # False inside a round, when the weights are ahead of what is said here

    def facts(self) -> dict[str, Any]:
        """All but the arrays, as JSON has it."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in APART}

    def take(self, facts: dict[str, Any], best: Arrays, velocity: Arrays) -> None:
        """The opposite of ``facts``."""
        for f in fields(self):
            if f.name not in APART:
                setattr(self, f.name, facts[f.name])
        self.loss, self.best, self.velocity = Loss(*facts["loss"]), best, velocity

    def done(self, plan: Plan) -> bool:
        patient = not self.best_epoch or self.epoch - self.best_epoch < plan.patience
        return self.epoch >= plan.epochs or not patient
