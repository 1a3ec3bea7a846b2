"""``plan`` as a user calls it: a probe with real trainings, and tables of others' runs."""

import json
from pathlib import Path

import pytest
from tests.tasks import write_labelled

from manyhands import prepare

TABLES = Path(__file__).parents[1] / "plan" / "tables"
AMAZON = ["--runs", TABLES / "amazon.csv", "--catalogue", "seeds-2019"]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare(str(write_labelled(folder / "raw.txt", 3000)), folder / "data")
    return folder / "data"


@pytest.mark.parametrize("model", ["fasttext", "lstm"])
def test_a_probe_and_its_plan(manyhands, data, model):
    done = manyhands("plan", data, "--model", model, "--epochs", 3, "--max-machines", 4, "--json")
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    options = plan["options"]
    assert plan["currency"] == "USD" and plan["date"] and plan["costs"]["row:cpu"] > 0
    assert [option["price"] for option in options] == sorted(option["price"] for option in options)
    assert all(low < option["hours"] < high for option in options for low, high in [option["hours_range"]])
    assert any(option["frontier"] for option in options)
    # Of so few rows, one machine learns at most; GPUs are for recurrent models.
    machines = {option["cluster"].partition("x ")[0] for option in options}
    assert machines == ({"1"} if model == "fasttext" else {"1", "2", "3", "4"})
    assert any(option["on_devices"] for option in options) == (model == "lstm")


def test_a_table_of_runs(manyhands):
    shown = manyhands("plan", *AMAZON, "--target-hours", 5)
    assert shown.code == 0, shown.err
    assert "cheapest within 5 hours: 1x g3.16xlarge" in shown.out
    assert "one g3.16xlarge is cheaper and faster than 2x g3.4xlarge" in shown.out
    assert "prices: USD, seeds-2019, 2019" in shown.out
    explained = manyhands("plan", *AMAZON, "--explain", "g3.16xlarge×2")
    shares = {line.split()[0]: line.split()[3] for line in explained.out.splitlines()[1:]}
    assert list(shares) == ["start", "load", "compute", "wait", "exchange"]
    assert sum(float(share.rstrip("%")) for share in shares.values()) == pytest.approx(100, abs=0.5)


def test_what_is_explained_computes_where_it_was_measured(manyhands):
    """The runs of this table are on GPUs, and not recurrent."""
    table = ["--runs", TABLES / "embedding.csv", "--catalogue", TABLES / "machines.csv"]
    said = manyhands("plan", *table, "--explain", "gtx970").out.splitlines()[0]
    assert 20 < float(said.split(": ")[1].split(" s")[0]) < 40, said


def test_spot_machines(manyhands, tmp_path):
    head = "instance,price_per_hour,spot_price_per_hour,currency,date,vcpus,memory_gib,device,devices\n"
    machine = "{},1.2,{},USD,2026-01-01,4,16,M60,1\n"
    Path(tmp_path, "mine.csv").write_text(head + machine.format("a", "0.4") + machine.format("b", ""))
    Path(tmp_path, "runs.csv").write_text("cluster,seconds\na,36000\n2x a,21000\nb,36000\n")
    mine = ["plan", "--runs", "runs.csv", "--catalogue", "mine.csv", "--max-machines", 2, "--spot"]
    seldom, often = (
        json.loads(manyhands(*mine, "--hours-between", hours, "--json").out)["options"] for hours in (1000, 3)
    )
    assert {option["cluster"] for option in seldom} <= {"1x a", "2x a"}
    assert often[0]["hours"] > seldom[0]["hours"] > 5
    assert often[0]["interruptions"]["middle"] >= 1
    missing = manyhands("plan", *AMAZON, "--spot")
    assert missing.code == 2 and "has a spot price" in missing.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "there is nothing to plan; give a prepared dataset, or a table with --runs"),
        (["raw.txt"], 2, "raw.txt is not prepared; make a dataset with: manyhands prepare raw.txt --out"),
        (["--runs", "nowhere.csv"], 3, "nowhere.csv does not exist"),
        (["--runs", "bad.csv"], 3, "bad.csv has no column 'seconds'"),
        (["--runs", "negative.csv", "--catalogue", "seeds-2019"], 3, "line 3: seconds is -5"),
        (["--runs", "unknown.csv"], 3, "line 2: the catalogue aws has no 'g99.large'"),
        (["--runs", "empty.csv"], 3, "empty.csv"),
        ([*AMAZON, "--explain", "2x"], 2, "the catalogue seeds-2019 has no '2x'"),
        ([*AMAZON, "--workers", "2"], 2, "--workers is not for plan"),
        ([*AMAZON, "--epochs", "2"], 2, "leave out the data and all settings of train"),
    ],
)
def test_mistakes(manyhands, tmp_path, words, code, said):
    for name, text in {
        "raw.txt": "__label__a good\n",
        "bad.csv": "cluster\np2.xlarge\n",
        "negative.csv": "cluster,seconds\np2.xlarge,5\ng3.4xlarge,-5\n",
        "unknown.csv": "cluster,seconds\ng99.large,5\n",
        "empty.csv": "cluster,seconds\n",
    }.items():
        Path(tmp_path, name).write_text(text)
    done = manyhands("plan", *words)
    assert done.code == code and said in done.err and len(done.err.strip().splitlines()) == 1, done.err
