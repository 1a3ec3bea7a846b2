"""Runs beside each other, computed by hand from made-up records."""

import csv
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.errors import InputError, UsageError
from manyhands.evaluation.intervals import wilson
from manyhands.report.compare import Figure, compare
from manyhands.report.compare_table import as_csv, columns, write_page

HOSTILE = "<img src=x onerror=alert(1)>"


def record(**changes) -> dict:
    """The record of a run of two epochs, with 100 test and 50 validation rows."""
    found = {
        "model": "ngrams",
        "learns": "labels",
        "spread": "single",
        "workers": 1,
        "traffic": {"bytes": 0, "bytes_per_worker": 0},
        "settings": {"epochs": 2, "seed": 0},
        "data": {"fingerprint": "aa", "rows": 1000, "splits": {"train": 1000, "valid": 50, "test": 100}},
        "seconds": 36.0,
        "rows_per_second": 100.0,
        "tokens_per_second": 900.0,
        "scores": {
            "train": [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}],
            "valid": [{"epoch": 1, "accuracy": 0.8}, {"epoch": 2, "accuracy": 0.9}],
            "best_epoch": 2,
            "test": {"rows": 100, "accuracy": 0.9},
        },
        "laps": [
            {"rounds": 1, "learning_seconds": 10.0, "seconds": {}, "shares": []},
            {"rounds": 1, "learning_seconds": 20.0, "seconds": {}, "shares": []},
        ],
        "machine": {"system": "Linux", "cores": 2},
    }
    return {**found, **changes}


def write(folder: Path, name: str, facts: dict | str) -> str:
    (folder / name).mkdir(parents=True)
    (folder / name / "record.json").write_text(facts if isinstance(facts, str) else json.dumps(facts))
    return str(folder / name)


def of_seed(seed: int, accuracy: float, seconds: float = 36.0) -> dict:
    scores = {**record()["scores"], "test": {"rows": 100, "accuracy": accuracy}}
    return record(settings={"epochs": 2, "seed": seed}, scores=scores, seconds=seconds)


def test_speed_money_and_intervals_by_hand(tmp_path):
    write(tmp_path, "one", record())
    traffic = {"bytes": 3000, "bytes_per_worker": 1500}
    crew = {"spread": "average", "workers": 2, "traffic": traffic, "rows_per_second": 150.0}
    write(tmp_path, "two", record(**crew, price={"per_hour": 1.0, "currency": "EUR", "total": 0.25}))
    found = compare([str(tmp_path)], price=0.4)
    one, two = found.lines
    assert (found.baseline, found.measure, found.unit) == ("one", "test accuracy", "rows")
    assert (one.speedup, one.efficiency, one.bytes_per_worker) == (1.0, 1.0, 0.0)
    assert (two.speedup, two.efficiency, two.bytes_per_worker) == (1.5, 0.75, 1500.0)
    assert (one.money.mean, one.currency) == (pytest.approx(0.004), "USD"), "36 s at 0.40 an hour"
    assert (two.money.mean, two.currency) == (0.25, "EUR"), "what the record says counts"
    assert one.interval == pytest.approx((0.8256343, 0.9447708), abs=1e-6)
    assert compare([str(tmp_path)], baseline="two").lines[0].speedup == pytest.approx(2 / 3)


def test_seeds_are_one_line_with_mean_and_spread(tmp_path):
    for seed, accuracy in enumerate((0.88, 0.9, 0.92)):
        write(tmp_path, f"seed-{seed}", of_seed(seed, accuracy, 30.0 + seed))
    write(tmp_path, "other", record(settings={"epochs": 3, "seed": 0}))
    other, seeds = compare([str(tmp_path)]).lines
    assert (other.name, len(other.folders), other.score.spread) == ("other", 1, None)
    assert (seeds.name, seeds.seeds) == ("seed-0 (+2)", [0, 1, 2])
    assert (seeds.score.mean, seeds.score.spread) == (pytest.approx(0.9), pytest.approx(0.02))
    assert seeds.seconds == Figure(31.0, 1.0)
    assert compare([str(tmp_path)], baseline="seed-1").baseline == "seed-0 (+2)"


def test_the_time_to_a_target_is_that_of_the_first_epoch_that_reaches_it(tmp_path):
    run = write(tmp_path, "run", record())

    def reached(target: str):
        return compare([run], target=target).lines[0].to_target

    assert reached("accuracy=0.8").seconds.mean == 10.0
    assert reached("0.85").seconds.mean == 20.0
    assert reached("loss=0.3").seconds.mean == 20.0
    assert (reached("accuracy=0.95").seconds, reached("accuracy=0.95").best) == (None, 0.9)


def test_older_records_say_it_by_what_workers_did(tmp_path):
    seconds = {"learn": [3.0, 2.0], "wait": [0.0, 1.5], "validate": [9.0, 9.0]}
    laps = [{"rounds": 1, "seconds": seconds, "shares": []}] * 2
    run = write(tmp_path, "run", record(laps=laps))
    assert compare([run], target="0.9").lines[0].to_target.seconds.mean == 7.0


def test_words_are_counted_for_embeddings(tmp_path):
    scores = {"test": {"rows": 10, "log_likelihood": -2.5}}
    run = write(tmp_path, "run", record(model="skipgram", learns="words", scores=scores))
    found = compare([run])
    assert (found.unit, found.measure) == ("words", "test log likelihood")
    assert (found.lines[0].rate.mean, found.lines[0].interval) == (900.0, None)


def test_other_data_and_folders_without_runs_are_told(tmp_path):
    here = write(tmp_path, "here", record())
    there = write(tmp_path, "there", record(data={"fingerprint": "bb", "rows": 900}))
    (tmp_path / "notes").mkdir()
    said: list[str] = []
    compare([here, there, str(tmp_path / "notes")], warn=said.append)
    assert [sentence.split(":")[0].removeprefix(f"{tmp_path}/") for sentence in said] == [
        "notes holds no record of a run, and is left out",
        "the data differ, so scores and seconds are hard to compare",
    ]


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ({"model": "ngrams"}, "no record of a training run: it has no 'settings'"),
        ({"model": "ngrams", "quantized": {}}, "it is of a quantised copy"),
        (record(seconds="long"), "is damaged"),
        (record(scores={"valid": [{"accuracy": "good"}]}), "is damaged"),
        (record(laps=[{"seconds": 3}]), "is damaged"),
        (record(learns="dances"), "is damaged"),
    ],
)
def test_a_damaged_record_is_an_error_that_names_it(tmp_path, facts, sentence):
    run = write(tmp_path, "run", facts)
    with pytest.raises(InputError, match=sentence) as raised:
        compare([run])
    assert f"{run}/record.json" in str(raised.value)


def test_bad_input_is_told_in_a_sentence(tmp_path):
    run = write(tmp_path, "run", record())
    words = write(tmp_path, "words", record(model="skipgram", learns="words"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty holds no record of a run"):
        compare([str(tmp_path / "empty")])
    with pytest.raises(InputError, match="does not exist"):
        compare([run, str(tmp_path / "typo")])
    with pytest.raises(InputError, match=r"run is a classifier but .*words is word vectors"):
        compare([run, words])
    with pytest.raises(UsageError, match="--baseline best is none of the runs; they are run"):
        compare([run], baseline="best")
    for target in ("accuracy=good", "accuracy=nan", "", "spearman=0.5"):
        with pytest.raises(UsageError, match="--target"):
            compare([run], target=target)
    with pytest.raises(UsageError, match="--price"):
        compare([run], price=-1.0)


def test_what_is_printed(tmp_path, manyhands):
    write(tmp_path, "runs/one", record())
    write(tmp_path, f"runs/{HOSTILE}", record(workers=2, spread="average", rows_per_second=150.0))
    shown = manyhands("compare", "runs", "--price", "0.4", "--target", "0.9", "--html", "page.html")
    assert shown.code == 0, shown.err
    cells = shown.out.splitlines()[2].split()
    assert cells[:5] == ["one", "single", "1", "0.9000", "0.8256–0.9448"]
    assert cells[5:] == ["36.0", "s", "100", "1.00", "100%", "0", "B", "0.0040", "USD", "20.0", "s"]
    assert "speed-up: by rows/s while learning, relative to one" in shown.out
    page = (tmp_path / "page.html").read_text()
    assert HOSTILE not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    facts = json.loads(manyhands("compare", "runs", "--json").out)
    assert [line["speedup"] for line in facts["runs"]] == [1.5, 1.0]
    assert facts["warnings"] == []
    rows = list(csv.DictReader(manyhands("compare", "runs", "--csv").out.splitlines()))
    assert [row["run"] for row in rows] == [HOSTILE, "one"]
    assert [float(row["efficiency"]) for row in rows] == [0.75, 1.0]
    assert manyhands("compare", "nowhere").code == 3


def test_figures_that_no_run_has_take_no_room(tmp_path):
    found = compare([write(tmp_path, "run", record(scores={}, laps=[]))])
    heads = [column.head for column in columns(found)]
    assert heads == ["run", "workers", "seconds", "rows/s", "speed-up", "efficiency", "sent/worker"]
    assert as_csv(found).splitlines()[1].startswith("run,1,ngrams,single,1,,,,,,36.0,,100.0,,1.0,1.0")
    write_page(found, str(tmp_path / "page.html"))
    with pytest.raises(UsageError, match="exists already"):
        write_page(found, str(tmp_path / "page.html"))


@given(st.integers(1, 10**6).flatmap(lambda rows: st.tuples(st.integers(0, rows), st.just(rows))))
def test_an_interval_holds_its_score_and_narrows_with_the_rows(counts):
    right, rows = counts
    low, high = wilson(right / rows, rows)
    assert 0 <= low <= right / rows + 1e-12
    assert right / rows - 1e-12 <= high <= 1
    wider = wilson(right / rows, 4 * rows)
    assert wider[1] - wider[0] <= high - low + 1e-12
    assert math.isfinite(low + high)
