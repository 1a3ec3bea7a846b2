"""A study: what each run is told, what is kept of a study that was interrupted, and what is refused."""

import json
from dataclasses import asdict
from types import SimpleNamespace

import pytest

import manyhands
from manyhands.data.dataset import open_dataset
from manyhands.errors import InputError, ResumableError, UnderTrainedError, UsageError
from manyhands.run.train import train as really_train
from manyhands.scaling import scale as scaling
from manyhands.storage.destination import MARKERS
from tests.tasks import write_labelled


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    manyhands.prepare(write_labelled(folder / "raw.txt", 500), folder / "data")
    return folder / "data"


@pytest.fixture
def calls(monkeypatch):
    """The runs that were trained: none of them really, each as fast as it has workers."""
    made = []

    def train(data, out, *, spread, rows=None, threads, progress, overwrite, **settings):
        if len(made) == settings.get("stop_after", 99):
            raise ResumableError("interrupted; to continue, repeat the command with --resume")
        workers = settings.get("workers") or settings.get("partitions") or 1
        settings["workers"] = workers
        made.append(SimpleNamespace(out=out.name, spread=spread, rows=rows, **settings))
        out.mkdir(exist_ok=True)
        (out / MARKERS["bundle"]).touch()
        record = {
            "model": "ngrams",
            "spread": spread,
            "workers": workers,
            "compiled": False,
            "learning_seconds": 1.0,
            "rows_per_second": 100.0 * workers,
            "data": {"rows": rows or 500},
            "traffic": {"bytes": 600},
            "laps": [],
            "scores": {"test": {"accuracy": 0.9}},
        }
        return SimpleNamespace(record=record)

    monkeypatch.setattr(scaling, "train", train)
    return made


def test_one_worker_is_one_process_and_is_told_nothing_of_crews(data, tmp_path, calls):
    study = manyhands.scale(data, tmp_path / "s", workers=[1, 2], epochs=2, balance="off", seed=7, repeats=2)
    assert [(run.out, run.spread, run.workers, run.seed) for run in calls] == [
        ("workers-1-run-1", "single", 1, 7),
        ("workers-2-run-1", "allreduce", 2, 7),
        ("workers-1-run-2", "single", 1, 8),
        ("workers-2-run-2", "allreduce", 2, 8),
    ]
    assert all(run.epochs == 2 for run in calls)
    assert not hasattr(calls[0], "balance") and calls[1].balance == "off"
    assert [point.efficiency for point in study.points] == [1.0, 1.0]
    facts = json.loads((tmp_path / "s" / "study.json").read_text())
    assert facts == study.facts()
    assert facts["runs"] == [asdict(run) for run in study.runs] and len(facts["runs"]) == 4
    assert (facts["job"]["model"], facts["job"]["epochs"], facts["unit"]) == ("ngrams", 2, "rows")
    assert (tmp_path / "s" / "study.svg").read_text().count("<circle") == 8


def test_a_spread_names_the_setting_that_counts_its_workers(data, tmp_path, calls):
    study = manyhands.scale(data, tmp_path / "s", workers=[1, 3], spread="average", rounds=2)
    assert (calls[1].partitions, calls[1].rounds) == (3, 2)
    assert study.points[1].bytes_per_worker == 200, "its record adds up the bytes of all"


def test_runs_that_are_complete_are_not_repeated(data, tmp_path, calls):
    out = tmp_path / "s"
    first = manyhands.scale(data, out, workers=[1, 2])
    again = manyhands.scale(data, out, workers=[1, 2])
    assert (first.kept, again.kept, len(calls)) == (0, 2, 2)
    assert again.points == first.points
    more = manyhands.scale(data, out, workers=[1, 2, 4])
    assert (more.kept, [run.out for run in calls[2:]]) == (2, ["workers-4-run-1"])
    (out / "workers-2-run-1" / MARKERS["bundle"]).unlink()
    manyhands.scale(data, out, workers=[1, 2])
    assert [run.out for run in calls[3:]] == ["workers-2-run-1"], "its folder is not complete any more"
    assert len(json.loads((out / "study.json").read_text())["runs"]) == 3, (
        "that of 4 workers is not forgotten"
    )


def test_a_study_that_was_interrupted_goes_on(data, tmp_path, calls, monkeypatch):
    out, train = tmp_path / "s", scaling.train
    monkeypatch.setattr(scaling, "train", lambda *a, **k: train(*a, **k, stop_after=1))
    with pytest.raises(ResumableError, match=r"^interrupted; to continue, repeat the command$"):
        manyhands.scale(data, out, workers=[1, 2])
    assert [run["folder"] for run in json.loads((out / "study.json").read_text())["runs"]] == [
        "workers-1-run-1"
    ]
    monkeypatch.setattr(scaling, "train", train)
    assert manyhands.scale(data, out, workers=[1, 2]).kept == 1
    assert [run.out for run in calls] == ["workers-1-run-1", "workers-2-run-1"]


def test_a_run_that_ended_short_says_how_to_go_on(data, tmp_path, monkeypatch):
    def train(*arguments, **named):
        raise UnderTrainedError("training stopped (why); to continue, repeat the command with --resume")

    monkeypatch.setattr(scaling, "train", train)
    with pytest.raises(UnderTrainedError, match=r"\(why\); to continue, repeat the command$"):
        manyhands.scale(data, tmp_path / "s", workers=[1, 2])


def test_a_run_that_compiled_kernels_is_made_again(data, tmp_path, calls, monkeypatch):
    train = scaling.train

    def compiling(*arguments, **named):
        trained = train(*arguments, **named)
        trained.record["compiled"] = len(calls) == 1
        return trained

    monkeypatch.setattr(scaling, "train", compiling)
    manyhands.scale(data, tmp_path / "s", workers=[1, 2])
    assert [run.out for run in calls] == ["workers-1-run-1", "workers-1-run-1", "workers-2-run-1"]


def test_weak_scaling_has_as_many_rows_for_each_worker(data, tmp_path, calls):
    rows = len(open_dataset(data)["train"])
    manyhands.scale(data, tmp_path / "s", workers=[1, 2, 4], weak=True)
    assert [run.rows for run in calls] == [rows // 4, rows // 2, rows]
    with pytest.raises(UsageError, match="most workers was 4, now it is 2; choose another --out"):
        manyhands.scale(data, tmp_path / "s", workers=[1, 2], weak=True)
    with pytest.raises(UsageError, match="scaling was weak, now it is strong"):
        manyhands.scale(data, tmp_path / "s", workers=[1, 2])


def test_a_sample_is_the_first_rows_of_the_dataset(data, tmp_path):
    whole = open_dataset(data)["train"]
    record = really_train(data, tmp_path / "run", rows=100, epochs=1).record
    assert record["data"]["rows"] == record["examples_seen"] == 100
    assert record["data"]["tokens"] == whole.lengths()[:100].sum()
    assert really_train(data, tmp_path / "all", rows=10**9, epochs=1).record["data"]["rows"] == len(whole)
    with pytest.raises(UsageError, match="is not prepared"):
        really_train(data.parent / "raw.txt", tmp_path / "raw", rows=100)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"workers": []}, "--workers must be whole numbers from 1 up, smallest first, like 1,2,4, not ''"),
        ({"workers": [2, 1]}, "smallest first, like 1,2,4, not '2,1'"),
        ({"workers": [1, 1]}, "smallest first, like 1,2,4, not '1,1'"),
        ({"workers": [0, 1]}, "from 1 up"),
        ({"repeats": 0}, "--repeats must be 1 or more, not 0"),
        ({"threads": 0}, "threads must be from 1"),
        (
            {"spread": "single"},
            "--spread single has no workers to count; choose --spread allreduce or average or server",
        ),
        ({"spread": "average", "partitions": 2}, "--partitions cannot be set here: --workers lists how many"),
        ({"spread": "average", "threads": 2}, "workers of --spread average have one thread each"),
        ({"model": "ngram"}, "there is no model 'ngram'; did you mean ngrams?"),
        ({"epoch": 2}, "there is no setting 'epoch'; did you mean 'epochs'?"),
        ({"balance": "often"}, "--balance is every:N"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(data, tmp_path, calls, wrong, said):
    with pytest.raises(UsageError) as refused:
        manyhands.scale(data, tmp_path / "s", **{"workers": [1, 2], **wrong})
    assert said in str(refused.value)
    assert not calls and not (tmp_path / "s").exists()


def test_weak_scaling_of_raw_files_is_refused(data, tmp_path):
    raw = data.parent / "raw.txt"
    with pytest.raises(UsageError, match="--weak takes samples of the rows, for which they must be prepared"):
        manyhands.scale(raw, tmp_path / "s", workers=[1, 2], weak=True)


def test_folders_of_others_are_refused(data, tmp_path, calls):
    manyhands.scale(data, tmp_path / "s", workers=[1, 2])
    with pytest.raises(UsageError, match=r"holds a study of another job: epochs was .*, now it is 9; choose"):
        manyhands.scale(data, tmp_path / "s", workers=[1, 2], epochs=9)
    with pytest.raises(UsageError, match="another job: model was ngrams, now it is lstm"):
        manyhands.scale(data, tmp_path / "s", workers=[1, 2], model="lstm")
    with pytest.raises(UsageError, match="another job: data was"):
        manyhands.scale(data.parent / "raw.txt", tmp_path / "s", workers=[1, 2])
    with pytest.raises(UsageError, match="exists already and is not a scaling study"):
        manyhands.scale(data, data, workers=[1, 2])
    with pytest.raises(UsageError, match="is not on this machine"):
        manyhands.scale(data, "s3://bucket/study", workers=[1, 2])
    (tmp_path / "s" / "study.json").write_text('{"version": 1}')
    with pytest.raises(InputError, match="is damaged"):
        manyhands.scale(data, tmp_path / "s", workers=[1, 2])
    assert len(calls) == 2


def test_workers_on_other_machines_are_refused(data, tmp_path, calls, monkeypatch):
    monkeypatch.setattr(scaling, "train", lambda *arguments, **named: None)
    with pytest.raises(UsageError, match="a study has all its workers on one machine"):
        manyhands.scale(data, tmp_path / "s", workers=[2])
