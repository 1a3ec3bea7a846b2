"""Every model of the catalog can be tuned, on prepared rows and on raw files, by a score that is its own."""

import math
from pathlib import Path

import pytest
from tests.tasks import TOPICS, running_text

import manyhands
from manyhands.bundle.bundle import load_bundle, record_of
from manyhands.catalog import LEARNERS, load
from manyhands.evaluation.words import evaluate_words
from manyhands.settings import ChangesTask, Search
from manyhands.tuning.tune import tune

pytest.importorskip("optuna", reason="needs optuna")

FAST = {"threads": 1, "deterministic": True, "trials": 2}
FIXED = {
    "ngrams": {},
    "fasttext": {},
    "lstm": {"hidden_size": 8, "dim": 8, "epochs": 2},
    "skipgram": {"dim": 8},
    "charlstm": {"hidden_size": 8, "char_dim": 8, "dim": 8, "epochs": 2},
}


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> Path:
    """Rows about a topic each, which is their label."""
    path = tmp_path_factory.mktemp("tuning") / "rows.txt"
    rows = running_text(400)
    labels = [max(range(4), key=lambda n: sum(w in TOPICS[n] for w in row.split())) for row in rows]
    path.write_text("".join(f"__label__{n} {row}\n" for n, row in zip(labels, rows, strict=True)))
    return path


@pytest.fixture(scope="module")
def prepared(raw: Path) -> Path:
    manyhands.prepare(raw, raw.parent / "data")
    return raw.parent / "data"


@pytest.mark.parametrize("name", LEARNERS)
def test_two_trials(name: str, prepared: Path, tmp_path: Path) -> None:
    tuned = tune(prepared, model=name, out=tmp_path / "best", **FAST, **FIXED[name])
    words = load(LEARNERS, "model", name).learns == "words"
    assert tuned.measure == ("log_likelihood" if words else "accuracy")
    assert [trial.error for trial in tuned.trials] == ["", ""]
    assert tuned.score == max(trial.score for trial in tuned.trials)
    assert tuned.trials[0].settings != tuned.trials[1].settings
    assert (tuned.chance is None) == words
    # The written model is the best trial: its validation score was recorded anew.
    scores = record_of(load_bundle(tmp_path / "best"))["scores"]
    again = scores["valid"][scores["best_epoch"] - 1][tuned.measure]
    assert math.isclose(again, tuned.score, rel_tol=1e-6)


@pytest.mark.parametrize("name", LEARNERS)
def test_raw_files(name: str, raw: Path, tmp_path: Path) -> None:
    """Some rows are held out to choose by; what is written was trained on all of them."""
    tuned = tune(raw, model=name, out=tmp_path / "best", **FAST, **FIXED[name])
    assert [trial.error for trial in tuned.trials] == ["", ""] and 20 < tuned.valid_rows < 60
    record = record_of(load_bundle(tmp_path / "best"))
    assert record["data"]["rows"] == 400 and "valid" not in record["scores"]
    assert record["tuned"]["score"] == tuned.score


@pytest.mark.parametrize("name", LEARNERS)
def test_only_comparable_scores_are_compared(name: str) -> None:
    """What decides about windows, negatives and words decides how hard held-out text is to guess."""
    kind = load(LEARNERS, "model", name)
    if kind.learns == "words":
        decides = {"window", "negatives", "sample", "min_count"}
        assert set(kind.Settings.marked(ChangesTask)) == decides
        assert "vocabulary_size" not in kind.Settings.marked(Search)
    else:
        assert not kind.Settings.marked(ChangesTask)


def test_word_vectors_by_sets(prepared: Path, tmp_path: Path) -> None:
    (tmp_path / "sets").mkdir()
    pairs = [(a, b, 9) for topic in TOPICS for a, b in zip(topic.split(), topic.split()[1:], strict=False)]
    pairs += [(a, b, 1) for a, b in zip(TOPICS[0].split(), TOPICS[1].split(), strict=True)]
    (tmp_path / "sets" / "topics.txt").write_text("".join(f"{a} {b} {score}\n" for a, b, score in pairs))
    tuned = tune(prepared, model="skipgram", sets=tmp_path / "sets", out=tmp_path / "best", **FAST, dim=20)
    assert tuned.measure == "spearman" and tuned.valid_rows == len(pairs) and tuned.chance is None
    assert {"window", "negatives", "sample", "min_count"} < set(tuned.trials[0].settings)
    report = evaluate_words(tmp_path / "best", sets=tmp_path / "sets")
    assert math.isclose(report.similarity["topics"].spearman_all, tuned.score, abs_tol=1e-6)
