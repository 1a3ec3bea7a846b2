"""The loop: rates, rounds, stopping, keeping the best, and going on exactly where a run was stopped."""

import json

import numpy as np
import pytest

from manyhands.errors import InputError, UsageError
from manyhands.models.learner import Loss, StateArray
from manyhands.records import Silent
from manyhands.settings import TrainingSettings
from manyhands.spread.single import Single
from manyhands.storage.tensors import read_tensors, write_tensors
from manyhands.training.checkpoint import Keeper, checkpoints
from manyhands.training.exchange import Alone
from manyhands.training.job import job_for
from manyhands.training.loop import fit
from manyhands.training.objective import with_class_weights
from manyhands.training.schedule import Schedule
from manyhands.training.state import Plan, State
from tests.tasks import RESOURCES, examples


class Recorder:
    """A learner that only notes what it is asked to do."""

    def __init__(self, loss: float = 1.0) -> None:
        self.calls: list[tuple[int, float, int]] = []
        self.loss = loss
        self.array = np.zeros(1)

    shares_batches = False

    def learn(self, block: int, rate: float, seed: int, crew) -> Loss:
        self.calls.append((block, rate, seed))
        self.array += 1
        return Loss(self.loss * 10, 10)

    def state(self):
        return {"array": StateArray(self.array)}


class Tens:
    """Blocks of ten rows."""

    unit = "rows"

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks

    def __len__(self) -> int:
        return self.blocks

    def rows(self, block: int) -> int:
        return 10

    def piece(self, piece, epoch: int) -> int:
        return piece.block


def run(learner, blocks=70, epochs=3, patience=99, validate=None, state=None, threads=1, progress=None):
    plan = Plan(epochs, Schedule(1.0, blocks * 10 * epochs), seed=4, threads=threads, patience=patience)
    state = state or State()
    fit(
        learner, Tens(blocks), plan, Alone(), state, validate=validate, keep=lambda s: None,
        progress=progress or Silent(),
    )  # fmt: skip
    return state


def test_every_block_once_an_epoch_in_an_order_of_its_own():
    learner = Recorder()
    state = run(learner)
    orders = [[block for block, _, _ in learner.calls[start : start + 70]] for start in (0, 70, 140)]
    assert all(sorted(order) == list(range(70)) for order in orders)
    assert orders[0] != orders[1] != orders[2]
    assert state.seen == 2100
    assert len({seed for _, _, seed in learner.calls}) == 210


def test_the_rate_falls_evenly_to_nothing():
    learner = Recorder()
    run(learner)
    rates = [rate for _, rate, _ in learner.calls]
    assert np.allclose(rates, 1 - np.arange(210) / 210)


def test_it_stops_when_validation_no_longer_improves_and_keeps_the_best():
    learner = Recorder()
    scores = iter([0.5, 0.7, 0.6, 0.7, 0.65, 0.9])
    state = run(learner, epochs=6, patience=2, validate=lambda: {"accuracy": next(scores)})
    assert state.epoch == 4  # epochs 3 and 4 were no better than 2
    assert state.best_epoch == 2
    assert state.best["array"][0] == 140
    assert [epoch["accuracy"] for epoch in state.history] == [0.5, 0.7, 0.6, 0.7]


def test_a_loss_that_is_no_number_stops_it():
    with pytest.raises(
        InputError, match="the loss became nan in epoch 1, step 1, after 0 rows; lower --learning-rate"
    ):
        run(Recorder(float("nan")))


class StopAfter(Silent):
    """Progress of a user who has had enough."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def stage(self, name, total, unit):
        pass

    def advance(self, done, note=""):
        if note:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


@pytest.mark.parametrize("model", ["ngrams", "fasttext"])
@pytest.mark.parametrize("stops", [[1], [3, 2], [7]])
def test_an_interrupted_run_ends_with_the_same_weights(tmp_path, model, stops):
    rows, valid = examples(12_000), examples(500, seed=1)  # two rounds an epoch

    def job(resume):
        settings = {"deterministic": True, "epochs": 4, "early_stopping": 9, "checkpoint_seconds": 1e9}
        return job_for(model, settings, RESOURCES, checkpoint=tmp_path / "kept", resume=resume)

    whole = Single().run(job(False), rows, valid, Silent())
    for number, rounds in enumerate(stops):
        with pytest.raises(KeyboardInterrupt):
            Single().run(job(number > 0), rows, valid, StopAfter(rounds))
    rest = Single().run(job(True), rows, valid, Silent())
    assert rest.state.history == whole.state.history
    assert rest.state.seen == whole.state.seen
    one, two = whole.model.arrays(), rest.model.arrays()
    assert all(np.array_equal(one[name], two[name]) for name in one)


def keeper(tmp_path, learner, **job) -> Keeper:
    return Keeper(tmp_path, {"model": "x", **job}, learner, 0)


def test_a_checkpoint_of_another_job_is_refused(tmp_path):
    learner = Recorder()
    keeper(tmp_path, learner, epochs=5).save(State(epoch=1))
    with pytest.raises(UsageError, match="epochs was 5, now it is 6"):
        keeper(tmp_path, learner, epochs=6).restore()


def test_a_damaged_checkpoint_is_told(tmp_path):
    learner = Recorder()
    keeper(tmp_path, learner).save(State(epoch=1))
    arrays, facts = read_tensors(checkpoints(tmp_path)[0])
    write_tensors(checkpoints(tmp_path)[0], {"other": arrays["array"].copy()}, facts)
    with pytest.raises(InputError, match="is damaged"):
        keeper(tmp_path, learner).restore()
    (checkpoints(tmp_path)[0]).write_bytes(b"\x10" * 40)
    with pytest.raises(InputError, match="is damaged"):
        keeper(tmp_path, learner).restore()


def test_of_the_last_two_checkpoints_the_newest_that_is_whole_is_taken(tmp_path):
    learner = Recorder()
    for epoch in (1, 2, 3):
        learner.array[:] = epoch
        keeper(tmp_path, learner).save(State(epoch=epoch))
    newest, _ = checkpoints(tmp_path)
    data = bytearray(newest.read_bytes())
    data[-3] ^= 1  # a bit of the array itself
    newest.write_bytes(data)
    learner.array[:] = 0
    assert keeper(tmp_path, learner).restore().epoch == 2
    assert learner.array[0] == 2


def test_without_a_checkpoint_a_run_begins(tmp_path):
    assert keeper(tmp_path, Recorder()).restore() == State()


def test_facts_of_a_checkpoint_are_readable(tmp_path):
    keeper(tmp_path, Recorder()).save(State(epoch=2, seen=77, history=[{"epoch": 1, "loss": 0.5}]))
    _, facts = read_tensors(checkpoints(tmp_path)[0])
    assert json.loads(facts["state"])["seen"] == 77


def test_balanced_weights_make_classes_equal():
    rows = examples(1000, 3)
    keep = np.flatnonzero((rows.labels.ids != 2) | (np.arange(1000) % 10 == 0))
    few = type(rows)(rows.corpus, rows.labels.take(keep), rows.weights[keep])
    weights = with_class_weights(few, TrainingSettings(class_weights="balanced")).weights
    sums = np.bincount(few.labels.ids, weights)
    assert np.allclose(sums, len(keep) / 3, rtol=1e-3)


class BreaksOff(Recorder):
    """A learner in which something breaks inside a round."""

    shares_batches = False

    def learn(self, block: int, rate: float, seed: int, crew) -> Loss:
        if len(self.calls) == 40:
            raise MemoryError
        return super().learn(block, rate, seed, crew)


def test_a_state_inside_a_round_says_so():
    """Its weights are ahead of it: a checkpoint of both would not be exact."""
    state = State()
    with pytest.raises(MemoryError):
        run(BreaksOff(), state=state)
    assert not state.whole
    assert state.seen == 320
