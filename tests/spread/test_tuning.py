"""A search on a small dataset: what it tries, what it keeps, what it never looks at."""

import fcntl
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import manyhands
from manyhands.bundle.bundle import open_bundle
from manyhands.catalog import LEARNERS, load
from manyhands.cli import tune as verb
from manyhands.errors import InputError, MissingPartError, UsageError
from manyhands.evaluation.evaluate import evaluate, judge
from manyhands.records import Silent
from manyhands.settings import Search
from manyhands.spread.single import Single
from manyhands.training.job import job_for
from manyhands.tuning import rows as tuning_rows
from manyhands.tuning import search
from manyhands.tuning import tune as tuning
from manyhands.tuning.tune import Tuned, tune
from tests.tasks import RESOURCES

pytest.importorskip("optuna", reason="needs optuna")

FAST = {"threads": 1, "deterministic": True, "effort": 0}
SPLITS = {"train": 400, "valid": 120, "test": 120}
GOOD, BAD = "great fresh warm quick kind".split(), "awful cold rude slow stale".split()


class Stop(BaseException):
    """As the Ctrl-C of the command line."""


class Watcher(Silent):
    """Notes what it is told; stops the work when so many trials are done."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.stages: list[str] = []
        self.notes: list[tuple[int, str]] = []

    def stage(self, name: str, total: int | None, unit: str) -> None:
        self.stages.append(name)

    def advance(self, done: int, note: str = "") -> None:
        self.notes.append((done, note))
        if self.stop_at is not None and done >= self.stop_at:
            raise Stop


def ranges_of(model: str) -> dict[str, Search]:
    return search.ranges_of(load(LEARNERS, "model", model).Settings, by_word_sets=False)


def prepared(
    folder: Path, *, valid: bool = True, shuffled_test: bool = False, multi_label: bool = False
) -> Path:
    """Reviews of which a tenth has the wrong label, so that no settings are right about all."""
    draw = np.random.default_rng(1)
    folder.mkdir(exist_ok=True)
    for split, rows in SPLITS.items():
        lines = []
        for n in range(rows):
            good = bool(draw.random() < 0.5)
            words = [*draw.choice(GOOD if good else BAD, 2), *draw.choice(GOOD + BAD, 2), f"{split}{n}"]
            label = good ^ bool(draw.random() < 0.1)
            if split == "test" and shuffled_test:
                label = bool(n % 2)
            names = ["good" if label else "bad", *(["even"] if multi_label and n % 2 else [])]
            lines.append(" ".join([*(f"__label__{name}" for name in names), *words]) + "\n")
        (folder / f"{split}.txt").write_text("".join(lines))
    files = {f"{split}_files": [folder / f"{split}.txt"] for split in ("valid", "test")[not valid :]}
    manyhands.prepare(folder / "train.txt", folder / "data", valid=0, test=0, **files)
    return folder / "data"


def scores(tuned: Tuned) -> list[tuple[dict, float | None]]:
    return [(trial.settings, trial.score) for trial in tuned.trials]


@pytest.mark.parametrize("model", ["ngrams", "fasttext"])
def test_finds_and_writes_the_best(model: str, tmp_path: Path) -> None:
    data, watcher = prepared(tmp_path / "raw"), Watcher()
    tuned = tune(data, model=model, out=tmp_path / "best", trials=3, progress=watcher, **FAST)
    defaults = load(LEARNERS, "model", model).Settings().model_dump()
    first = tuned.trials[0].settings
    assert set(first) == set(ranges_of(model)) and all(first[name] == defaults[name] for name in first)
    assert len(tuned.trials) == 3 and tuned.default_score == tuned.trials[0].score
    assert tuned.valid_rows == 120
    assert tuned.chance == pytest.approx(2 * (tuned.score * (1 - tuned.score) / 120) ** 0.5)
    assert tuned.score == max(trial.score for trial in tuned.trials) >= tuned.default_score > 0.6
    for trial in tuned.trials:
        for name, value in trial.settings.items():
            low, high, _ = ranges_of(model)[name]
            assert low <= value <= high and type(value) is type(low)
    assert watcher.stages[0] == "tuning" and (3, f"best {tuned.score:.4f}") in watcher.notes
    bundle = open_bundle(tmp_path / "best")
    bundle.verify()
    kept = bundle.config.settings
    assert all(kept[name] == value for name, value in tuned.settings.items() if name in kept)
    assert tuned.settings.items() >= max(tuned.trials, key=lambda trial: trial.score).settings.items()
    assert evaluate(bundle, data, split="valid").accuracy == tuned.score
    record = json.loads((tmp_path / "best" / "record.json").read_text())
    assert record["tuned"] == {"trials": 3, "measure": "accuracy", "score": tuned.score}
    assert sorted(path.name for path in tmp_path.iterdir()) == [".best.tune", "best", "raw"]


def test_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = prepared(tmp_path / "raw")
    begun = []
    run = Single.run
    monkeypatch.setattr(Single, "run", lambda self, job, *rest: begun.append(job) or run(self, job, *rest))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = tune(data, trials=3, **FAST)
    assert len(begun) == 3
    second = tune(data, trials=5, **FAST)
    assert len(begun) == 5 and scores(second)[:3] == scores(first)
    assert len({str(trial.settings) for trial in second.trials}) == 5, "nothing is tried twice"
    assert tune(data, trials=4, **FAST).score == second.score and len(begun) == 5
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    assert scores(tune(data, trials=5, **FAST)) == scores(second), "in one go, the same is tried"
    assert len(begun) == 10


def test_other_searches_are_separate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = prepared(tmp_path / "raw")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tune(data, trials=2, **FAST)
    fixed = tune(data, trials=2, ngrams=1, **FAST)
    assert all("ngrams" not in trial.settings for trial in fixed.trials) and fixed.settings["ngrams"] == 1
    assert len(tune(data, trials=1, seed=7, **FAST).trials) == 1
    assert len(tune(data, trials=1, **FAST).trials) == 2


def test_everything_fixed_leaves_one_trial(tmp_path: Path) -> None:
    data = prepared(tmp_path / "raw")
    tuned = tune(data, out=tmp_path / "best", ngrams=1, learning_rate=4.0, epochs=2, min_count=1, **FAST)
    assert len(tuned.trials) == 1 and tuned.trials[0].settings == {}


def test_test_rows_take_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    looked_at = []
    rows_of_split = tuning_rows.rows_of_split

    def look(dataset, split, **more):
        looked_at.append(split)
        return rows_of_split(dataset, split, **more)

    monkeypatch.setattr(tuning_rows, "rows_of_split", look)
    one = tune(prepared(tmp_path / "one"), trials=3, **FAST)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    two = tune(prepared(tmp_path / "two", shuffled_test=True), trials=3, **FAST)
    assert scores(one) == scores(two) and set(looked_at) == {"train", "valid"}


def test_several_labels_are_judged_by_micro_f1(tmp_path: Path) -> None:
    data = prepared(tmp_path / "raw", multi_label=True)
    tuned = tune(data, out=tmp_path / "best", trials=2, **FAST)
    assert tuned.measure == "micro_f1"
    assert evaluate(tmp_path / "best", data, split="valid").micro_f1 == tuned.score


def test_time_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, now = prepared(tmp_path / "raw"), [0.0]
    run = Single.run

    def takes_25_seconds(*arguments):
        now[0] += 25
        return run(*arguments)

    monkeypatch.setattr(Single, "run", takes_25_seconds)
    for module in (search, tuning):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert len(tune(data, minutes=0, **FAST).trials) == 1, "the defaults are tried in any case"
    assert len(tune(data, minutes=1, **FAST).trials) == 1 + 3, (
        "begun after 0, 25 and 50 seconds, not after 75"
    )
    assert len(tune(data, minutes=0, **FAST).trials) == 4


def test_an_interrupt_loses_no_finished_trial(tmp_path: Path) -> None:
    data, out = prepared(tmp_path / "raw"), tmp_path / "best"
    with pytest.raises(Stop):
        tune(data, out=out, progress=Watcher(stop_at=2), **FAST)
    assert not out.exists()
    journal = tmp_path / ".best.tune" / "journal.log"
    with journal.open("ab") as file:
        file.write(b'{"op_code":')  # as a kill in the middle of writing leaves it
    Path(f"{journal}.lock").symlink_to(journal)
    tuned = tune(data, out=out, trials=3, **FAST)
    assert len(tuned.trials) == 3 and out.is_dir()
    assert len(tune(data, out=out, trials=4, overwrite=True, **FAST).trials) == 4


def test_a_damaged_journal_is_told(tmp_path: Path) -> None:
    (tmp_path / ".best.tune").mkdir()
    (tmp_path / ".best.tune" / "journal.log").write_text("no json\n{}\n")
    with pytest.raises(InputError, match=r"journal.log is damaged .*; remove it and tune again"):
        tune(prepared(tmp_path / "raw"), out=tmp_path / "best", trials=1, **FAST)


def test_one_search_at_a_time(tmp_path: Path) -> None:
    (tmp_path / ".best.tune").mkdir()
    lock = os.open(tmp_path / ".best.tune", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(UsageError, match="another run is tuning"):
        tune(prepared(tmp_path / "raw"), out=tmp_path / "best", trials=1, **FAST)
    os.close(lock)


def test_settings_that_cannot_be_trained_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = prepared(tmp_path / "raw")
    run = Single.run

    def fails(self, job, *rest):
        if job.settings.learning_rate == 4.0:
            raise UsageError("the model needs more memory")
        return run(self, job, *rest)

    monkeypatch.setattr(Single, "run", fails)
    tuned = tune(data, out=tmp_path / "best", trials=2, **FAST)
    assert [trial.score is None for trial in tuned.trials] == [True, False]
    assert tuned.default_score is None and tuned.trials[0].error == "the model needs more memory"
    with pytest.raises(UsageError, match="none of 10 settings could be trained; first: the model needs"):
        tune(data, out=tmp_path / "other", learning_rate=4.0, **FAST)
    assert not (tmp_path / "other").exists()


def test_mistakes(tmp_path: Path) -> None:
    data = prepared(tmp_path / "raw")
    with pytest.raises(UsageError, match="there is no setting 'epoch'; did you mean 'epochs'"):
        tune(data, epoch=3)
    with pytest.raises(UsageError, match="there is no model 'ngram'; did you mean ngrams"):
        tune(data, model="ngram")
    with pytest.raises(UsageError, match="--minutes must be 0 or more, not -1"):
        tune(data, minutes=-1)
    with pytest.raises(UsageError, match="--trials must be 1 or more, not 0"):
        tune(data, trials=0)
    with pytest.raises(UsageError, match="is not a size"):
        tune(data, size="small")
    with pytest.raises(UsageError, match=r"--labels is for raw files; .*data is prepared already"):
        tune(data, labels="stars")
    with pytest.raises(UsageError, match="--sets is for word vectors"):
        tune(data, sets=tmp_path)
    with pytest.raises(InputError, match="has no similarity set"):
        tune(data, model="skipgram", sets=tmp_path)
    with pytest.raises(UsageError, match="skipgram models cannot be quantised; leave out --size"):
        tune(data, model="skipgram", size="1MB")
    (tmp_path / "few.txt").write_text("__label__a good\n__label__b bad\n")
    with pytest.raises(InputError, match=r"few.txt has 2 rows: too few to hold some out"):
        tune(tmp_path / "few.txt")
    with pytest.raises(InputError, match="has no validation rows to tune by; prepare it with --valid"):
        tune(prepared(tmp_path / "no", valid=False))
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "mine.txt").write_text("")
    with pytest.raises(UsageError, match="exists already and is not a bundle"):
        tune(data, out=tmp_path / "best")


def test_optuna_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingPartError, match=r"manyhands\[tune\]"):
        tune(prepared(tmp_path / "raw"), out=tmp_path / "best")


def test_size_judges_the_small_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in that forgets all but the bias: what is told must be the score of that."""
    sizes = []

    def forgetful(bundle, size_bytes):
        sizes.append(size_bytes)
        arrays = {**bundle.model.arrays(), "table": np.zeros_like(bundle.model.arrays()["table"])}
        facts = {**bundle.config.facts, "labels": bundle.labels}
        return type(bundle)(bundle.config, type(bundle.model).from_parts(facts, arrays))

    monkeypatch.setattr("manyhands.tuning.search.quantize", forgetful)
    monkeypatch.setattr("manyhands.tuning.tune.quantize", forgetful)
    data = prepared(tmp_path / "raw")
    tuned = tune(data, out=tmp_path / "best", size="2MB", trials=2, **FAST)
    assert sizes == [2 << 20] * 3 and 0.4 < tuned.score < 0.6
    assert evaluate(tmp_path / "best", data, split="valid").accuracy == tuned.score
    record = json.loads((tmp_path / "best" / "record.json").read_text())
    assert (
        record["tuned"]["size_bytes"] == 2 << 20 and record["scores"]["valid"][-1]["accuracy"] == tuned.score
    )
    assert record["scores"]["test"]["accuracy"] == evaluate(tmp_path / "best", data).accuracy


def test_size_with_the_real_quantiser(tmp_path: Path) -> None:
    pytest.importorskip("manyhands.bundle.quantize", reason="no quantiser yet")
    data = prepared(tmp_path / "raw")
    tuned = tune(data, out=tmp_path / "best", size="100KB", trials=2, **FAST)
    assert sum(path.stat().st_size for path in (tmp_path / "best").glob("*.safetensors")) <= 100 << 10
    assert evaluate(tmp_path / "best", data, split="valid").accuracy == tuned.score


def test_the_verb(tmp_path: Path) -> None:
    data, app = prepared(tmp_path / "raw"), typer.Typer()
    verb.add_to(app, [])
    arguments = [str(data), "--trials", "2", "--epochs", "2", "--deterministic", "--threads", "1"]
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "COLUMNS": "200"}
    facts = json.loads(CliRunner().invoke(app, [*arguments, "--json"], env=env).stdout)
    assert len(facts["trials"]) == 2 and facts["settings"]["epochs"] == 2 and facts["out"] is None
    shown = CliRunner().invoke(app, arguments, env=env).stdout
    assert f"of 2 trials: {facts['score']:.4f}, {facts['default_score']:.4f} by default" in shown
    assert f"120 validation rows: differences below {facts['chance']:.4f} may be chance" in shown
    assert "train with: manyhands train" in shown and "--epochs 2 --deterministic" in shown
    assert "--effort 0" in shown  # what was chosen before the search is among the settings already
    out = ["--out", str(tmp_path / "best")]
    shown = CliRunner().invoke(app, [*arguments, *out], env=env).stdout
    assert f"{tmp_path / 'best'}: trained with the best settings" in shown


def test_raw_rows_are_held_out_by_their_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the order of the rows nor rows that are added move one of them; equal texts stay together."""
    prepared(tmp_path / "raw")
    lines = (tmp_path / "raw" / "train.txt").read_text().splitlines()
    seen: list[set[str]] = []
    run = Single.run

    def watched(self, job, train, valid, *rest):
        texts = valid.corpus.texts(np.arange(len(valid))).strings()
        assert not set(texts) & set(train.corpus.texts(np.arange(len(train))).strings())
        seen.append({text.strip() for text in texts})
        return run(self, job, train, valid, *rest)

    monkeypatch.setattr(Single, "run", watched)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for number, some in enumerate((lines, lines[::-1], lines + lines[:200])):
        (tmp_path / f"{number}.txt").write_text("\n".join(some) + "\n")
        tune(tmp_path / f"{number}.txt", trials=1, **FAST)
    assert seen[0] == seen[1] == seen[2] and 20 < len(seen[0]) < 60


def test_trials_on_raw_rows_go_on_to_their_last_epoch(tmp_path: Path) -> None:
    """A training on all rows has none to stop by, so a trial is judged by how it ends."""
    prepared(tmp_path / "raw")
    raw = tmp_path / "raw" / "train.txt"
    wild = {"learning_rate": 50.0, "epochs": 6, "ngrams": 1, "min_count": 1, "early_stopping": 1}
    wild |= {"loss": "softmax"}
    tuned = tune(raw, out=tmp_path / "best", **wild, **FAST)
    job = job_for("ngrams", {**wild, "deterministic": True}, RESOURCES)
    found = tuning_rows.open_rows((str(raw),), job, Silent())
    model = Single().run(job, found.train, None, Silent()).model
    assert tuned.score == judge(model, found.valid).accuracy
    assert len(json.loads((tmp_path / "best" / "record.json").read_text())["scores"]["train"]) == 6


def test_raw_rows_by_size(tmp_path: Path) -> None:
    prepared(tmp_path / "raw")
    tuned = tune(tmp_path / "raw" / "train.txt", out=tmp_path / "best", size="60KB", trials=1, **FAST)
    record = json.loads((tmp_path / "best" / "record.json").read_text())
    assert tuned.score > 0.6 and record["data"]["rows"] == 400 and "valid" not in record["scores"]
    assert sum(path.stat().st_size for path in (tmp_path / "best").glob("*.safetensors")) <= 60 << 10
