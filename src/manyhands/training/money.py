"""What a run costs while it goes on, and when it has to stop so as not to cost more than its budget.

Time is money here: all of it, from the start of the program until it has ended. A run can only stop where a
checkpoint can be kept, so it stops as soon as the way to the next such place, the checkpoint and the way out
would take longer than the money lasts. How long these take is measured as the run goes.
"""

import time
from collections import deque
from typing import Any

from manyhands.errors import SpentError, UsageError
from manyhands.training.state import State

CURRENCY = "USD"
ROUND, VALIDATION = "round", "validation"
REMEMBERED = 5  # rounds, the longest of which the next is expected to take
SAFETY = 1.25  # saving takes longer while others write, too
NEARLY = 0.95  # of the budget: if another worker has its crew stop now, this is why
SPARE, MOST_SPARE_SECONDS = 0.005, 5.0  # of the budget: what takes longer than ever does so at the end


class Account:
    """What a run has cost, in dollars; earlier parts of the same run are counted by ``begin``.

    ``since`` is the time of day from which on the machines are paid, ``leaving`` how many seconds the program
    takes to end once a checkpoint is kept.
    """

    def __init__(self, price: float | None, budget: float | None, since: float, leaving: float = 0.0) -> None:
        self._price, self._budget, self._leaving = price or 0.0, budget, leaving
        self._since = time.monotonic() - (time.time() - since)
        self._before = 0.0
        self.ends = False  # the run stops because of its budget
        self._marked = time.monotonic()
        self._took: dict[str, deque[float]] = {name: deque(maxlen=REMEMBERED) for name in (ROUND, VALIDATION)}

    @property
    def spent(self) -> float:
        return self._before + self._price * (time.monotonic() - self._since) / 3600

    def at_the_end(self, seconds: float) -> float:
        """What is spent when a checkpoint has been kept, in so many seconds, and the program has ended."""
        return self.spent + self._price * (seconds + self._leaving) / 3600

    @property
    def limited(self) -> bool:
        return self._budget is not None

    def begin(self, state: State) -> None:
        """Go on from what earlier parts of the run have spent; an error if the rest is too little."""
        self._before, self._marked = state.spent, time.monotonic()
        if self._budget is None or not self.is_short(0.0):
            return
        if state.seen:
            raise UsageError(
                f"this run has spent {dollars(self._before)} before, and getting ready again makes it "
                f"{dollars(self.spent)}: to go on, give a --budget of more than {dollars(self._budget)}, "
                "which counts from the run's first start"
            )
        raise UsageError(
            f"--budget {self._budget:g} is spent before the first row is learnt: at --price {self._price:g} "
            f"an hour, getting ready cost {dollars(self.spent)}; give a larger budget"
        )

    def note(self, state: State) -> None:
        """A place has been reached where the run could stop: how long was the way, and what is spent now?"""
        kind = ROUND if state.round else VALIDATION
        self._took[kind].append(time.monotonic() - self._marked)
        self.mark()
        state.spent = self.spent

    def mark(self) -> None:
        """The way to the next place begins here."""
        self._marked = time.monotonic()

    def is_short(self, seconds: float) -> bool:
        """Whether the money is gone, or would be if so many seconds passed and the program ended."""
        if self._budget is None:
            return False
        spare = min(SPARE * self._budget / self._price * 3600, MOST_SPARE_SECONDS)
        return self._seconds_left < seconds + self._leaving + spare

    @property
    def _seconds_left(self) -> float:
        assert self._budget is not None  # noqa: S101 - or nobody asks
        return (self._budget - self.spent) / self._price * 3600

    def way(self, state: State, lag: int, validation: float, saving: float) -> float:
        """Seconds until a run that goes on now has a checkpoint again, and can end.

        It goes on for a round, or for a validation at the end of an epoch; a crew that agrees to stop does so
        ``lag`` rounds later. ``validation`` is a guess for the first one.
        """
        rounds, judged = self._took[ROUND], self._took[VALIDATION]
        judge = max(judged, default=validation)
        if not (state.left or state.round):  # all is learnt: the model is tested, and written
            return judge + SAFETY * saving
        steps = [max(rounds, default=0.0)] * min(state.left, lag + 1)
        if len(steps) <= lag:
            steps += [judge, *[max(rounds, default=0.0)] * (lag - len(steps))]
        return sum(steps) + SAFETY * saving

    def error(self) -> SpentError | None:
        """What to say of a run that stops now, if its budget is the reason."""
        if self._budget is None or not (self.ends or self.spent >= NEARLY * self._budget):
            return None
        return SpentError(
            f"stopped at its budget, with {dollars(self.at_the_end(0.0))} of {dollars(self._budget)} spent; "
            "to continue, repeat the command with --resume and a larger --budget"
        )

    def record(self) -> dict[str, Any] | None:
        """The price as a record has it; None where nobody said what an hour costs."""
        if not self._price:
            return None
        return {"per_hour": self._price, "currency": CURRENCY, "total": round(self.spent, 6)}


def dollars(amount: float) -> str:
    """An amount with as many digits as say something.

    >>> dollars(12.3456), dollars(0.123456), dollars(0.000012345), dollars(0)
    ('$12.35', '$0.1235', '$0.00001234', '$0.00')
    """
    if amount >= 1 or amount <= 0:
        return f"${amount:,.2f}"
    digits = 4
    while amount * 10 ** (digits - 3) < 1:
        digits += 1
    return f"${amount:.{digits}f}"
