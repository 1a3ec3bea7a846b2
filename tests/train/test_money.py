"""The account of a run: what it has spent, when it has to stop, and that stopping changes nothing else."""

import re
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

from manyhands.errors import SpentError, UsageError
from manyhands.records import Silent
from manyhands.settings import TrainingSettings
from manyhands.spread.single import Single
from manyhands.training import money
from manyhands.training.job import job_for
from manyhands.training.money import Account
from manyhands.training.state import State
from tests.tasks import RESOURCES, examples

DOLLAR_A_SECOND = 3600.0


class Clock:
    """A time that passes when it is told to, or a little with every look at it."""

    def __init__(self, monkeypatch, by_itself: float = 0.0) -> None:
        self.now, self.by_itself = 1000.0, by_itself
        monkeypatch.setattr(money, "time", SimpleNamespace(monotonic=self.look, time=self.look))

    def look(self) -> float:
        self.now += self.by_itself
        return self.now


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_all_time_is_paid_for_and_what_earlier_parts_spent_counts(clock):
    account = Account(DOLLAR_A_SECOND, None, clock.now - 5)
    account.begin(State(spent=100.0))
    clock.now += 2
    assert account.spent == pytest.approx(107)
    assert account.record() == {"per_hour": 3600.0, "currency": "USD", "total": 107.0}
    assert Account(None, None, clock.now).record() is None


def test_the_way_to_the_next_stop_is_as_long_as_it_was_measured(clock):
    account = Account(DOLLAR_A_SECOND, 1000, clock.now)
    state = State()
    for seconds in (9, 1, 2, 3, 2, 1):  # the first, in which kernels are compiled, is forgotten
        clock.now += seconds
        state.round, state.left = state.round + 1, 6 - state.round
        account.note(state)
    state.left = 2
    assert account.way(state, 0, 50, saving=0) == 3
    assert account.way(state, 1, 50, saving=4) == 3 + 3 + 1.25 * 4
    state.left = 1
    assert account.way(state, 0, 50, saving=0) == 3
    assert (
        account.way(state, 1, 50, saving=0) == 3 + 50
    )  # a crew stops one round later: behind the validation
    state.left = 0
    assert account.way(state, 0, 50, saving=0) == 50
    clock.now += 7
    state.round = 0  # it was judged: now it is known how long that takes
    account.note(state)
    assert account.way(state, 0, 50, saving=2) == 7 + 2.5  # all is learnt: it is tested and written


def test_it_is_short_when_the_way_and_the_end_would_cost_more_than_there_is(clock):
    account = Account(DOLLAR_A_SECOND, 100.0, clock.now, leaving=2.0)
    clock.now += 90
    assert not account.is_short(7.4)  # 90 + 7.4 + 2 and half a percent to spare
    assert account.is_short(7.6)
    assert not Account(DOLLAR_A_SECOND, None, 0.0).is_short(1e9)
    assert account.error() is None  # whoever is stopped now was interrupted
    account.ends = True
    assert "with $92.00 of $100.00 spent" in str(account.error())


def test_a_budget_that_is_too_small_to_begin_is_told(clock):
    with pytest.raises(UsageError, match=r"--budget 3 is spent before the first row is learnt.*cost \$4.00"):
        Account(DOLLAR_A_SECOND, 3.0, clock.now - 4).begin(State())
    with pytest.raises(UsageError, match=r"has spent \$9.50 before.*--budget of more than \$10.00"):
        Account(DOLLAR_A_SECOND, 10.0, clock.now - 1).begin(State(seen=5, spent=9.5))


@pytest.mark.parametrize(
    "values", [{"budget": 1}, {"price": 0}, {"price": 1, "budget": -1}, {"price": "nan"}]
)
def test_prices_that_make_no_sense(values):
    with pytest.raises(UsageError, match=r"--budget|--price"):
        TrainingSettings.create(**values)


def test_a_run_that_stops_at_its_budget_again_and_again_ends_with_the_same_weights(tmp_path, monkeypatch):
    clock = Clock(monkeypatch, by_itself=1.0)
    rows, valid = examples(12_000), examples(500, seed=1)  # two rounds an epoch

    def run(**more):
        settings = {"deterministic": True, "epochs": 4, "early_stopping": 9, "checkpoint_seconds": 1e9}
        place = {"checkpoint": tmp_path / "kept", "resume": bool(more), "paid_since": clock.now}
        return Single().run(job_for("ngrams", settings | more, RESOURCES, **place), rows, valid, Silent())

    whole, parts = run(), 0
    for budget in count(40, 20):
        try:
            rest = run(price=DOLLAR_A_SECOND, budget=budget)
            break
        except SpentError as error:
            spent = float(re.search(r"with \$([\d.]+) of", str(error))[1])
            assert budget - 30 < spent < budget + 10  # to look at the clock takes time here
            parts += 1
    assert parts >= 2
    assert rest.state.history == whole.state.history
    assert rest.account.record()["total"] > spent
    one, two = whole.model.arrays(), rest.model.arrays()
    assert all(np.array_equal(one[name], two[name]) for name in one)
