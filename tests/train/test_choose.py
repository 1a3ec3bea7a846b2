"""Settings chosen from the training rows: what is found, what is left alone, and that it is repeatable."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands import train
from manyhands.records import Resources, Silent
from manyhands.text.corpus import corpus_of
from manyhands.text.labelled_rows import LabelledRows, Labels
from manyhands.text.ragged import from_strings
from manyhands.training.choose import FEW_FOLDS, FEW_ROWS, FOLDS, _folds, choose, with_choice
from manyhands.training.job import job_for
from tests.tasks import RESOURCES, examples, multi_label

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def endings(count: int) -> LabelledRows:
    """Words that nobody has seen before; how they end tells the label."""
    draw = random.Random(5)
    labels = [draw.randrange(2) for _ in range(count)]
    rows = [
        " ".join("".join(draw.choices(LETTERS, k=6)) + ("ing" if label else "ous") for _ in range(2))
        for label in labels
    ]
    names = Labels.single(np.array(labels, np.int32), ["an adjective", "a verb"])
    return LabelledRows(corpus_of(from_strings(rows)), names, np.ones(count, np.float32))


def chosen(rows: LabelledRows, model: str = "ngrams", resources: Resources = RESOURCES, **settings):
    return choose(job_for(model, settings, resources), rows, Silent())


def test_letters_are_looked_at_where_words_tell_nothing() -> None:
    found = chosen(endings(400))
    assert found.settings["char_ngrams"] == "3-5"
    assert found.facts["score"] > 0.98
    assert "--char-ngrams 3-5" in found.summary


def test_the_same_rows_give_the_same_choice_on_any_number_of_threads() -> None:
    rows = examples(600, labels=4)
    one, four = (chosen(rows, resources=Resources(threads=n, memory_bytes=1 << 30)) for n in (1, 4))
    assert {**one.facts, "seconds": 0} == {**four.facts, "seconds": 0}


def test_what_the_user_has_set_is_left_alone() -> None:
    rows, given_settings = endings(300), {"char_ngrams": "0-0", "learning_rate": 1.5}
    found = chosen(rows, **given_settings)
    assert not set(given_settings) & set(found.settings)
    job = with_choice(job_for("ngrams", given_settings, RESOURCES), rows, Silent())
    assert (job.settings.char_ngrams, job.settings.learning_rate) == ("0-0", 1.5)


@pytest.mark.parametrize("model", ["fasttext", "lstm", "skipgram"])
def test_models_without_alternatives_are_trained_as_they_are(model: str) -> None:
    assert chosen(examples(100), model) is None


def test_no_effort_and_too_few_rows_leave_the_defaults() -> None:
    assert chosen(examples(100), effort=0) is None
    assert chosen(examples(10)) is None


def test_rows_of_several_labels_are_judged_by_their_own_measure() -> None:
    found = chosen(multi_label(200))
    assert found.facts["judged_by"] == "micro_f1"
    assert "loss" not in found.settings or found.settings["loss"] == "one-vs-all"


def test_more_effort_is_never_worse_on_the_rows_it_chose_by() -> None:
    rows = examples(500, labels=3)
    scores = [chosen(rows, effort=effort).facts["score"] for effort in (1, 3)]
    assert scores[1] >= scores[0]


@given(st.lists(st.integers(0, 4), min_size=10, max_size=300), st.integers(0, 99))
def test_every_row_is_in_one_fold_and_classes_are_even(labels: list[int], seed: int) -> None:
    names = Labels.single(np.array(labels, np.int32), list("abcde"))
    rows = LabelledRows(corpus_of(from_strings(["x"] * len(labels))), names, np.ones(len(labels), np.float32))
    folds = _folds(rows, seed)
    assert len(folds) == (FEW_FOLDS if len(labels) < FEW_ROWS else FOLDS)
    assert sorted(np.concatenate(folds)) == list(range(len(labels)))
    for label in range(5):
        counts = [int((names.ids[fold] == label).sum()) for fold in folds]
        assert max(counts) - min(counts) <= 1


def test_a_crew_is_told_what_was_chosen(tmp_path: Path) -> None:
    """The rows have to be read by every worker; choosing is done once, before they start."""
    draw, rows = random.Random(1), endings(300)
    texts, table = rows.corpus.texts(np.arange(300)).strings(), tmp_path / "table.csv"
    lines = [f'"{rows.labels.names[rows.labels.ids[i]]}","{texts[i].strip()}"' for i in range(300)]
    draw.shuffle(lines)
    table.write_text("label,text\n" + "\n".join(lines) + "\n", "utf-8")
    alone = train(table, tmp_path / "alone", deterministic=True).record
    crew = train(table, tmp_path / "crew", spread="allreduce", workers=2).record
    assert alone["chosen"]["settings"] == crew["chosen"]["settings"]
    assert alone["settings"]["char_ngrams"] == crew["settings"]["char_ngrams"] == "3-5"
    assert crew["settings"]["effort"] == 0
