"""The page about a run: its figures from made-up records, and the page of a real run in a real browser."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyhands.data.prepare.prepare import prepare
from manyhands.errors import InputError, MissingPartError, UsageError
from manyhands.evaluation.calibration import reliability
from manyhands.evaluation.details import confusion
from manyhands.report import charts
from manyhands.report.records import RunRecord
from manyhands.report.run_page import report
from manyhands.run.train import train
from tests.conftest import write_jsonl
from tests.integration.test_page import PATIENCE, browser  # noqa: F401 - a fixture
from tests.report.test_compare import record, write

HOSTILE = "</title><img src=x onerror=document.title='hacked'>"
INKS = {"light": "rgb(93, 100, 111)", "dark": "rgb(163, 172, 184)"}  # of the text in pictures
SIZES = {"phone": (390, 844), "desktop": (1280, 800)}


def evaluation(labels: int) -> dict[str, Any]:
    names = [f"label {number} {HOSTILE}" for number in range(labels)]
    rates = {"precision": 0.9, "recall": 0.8, "f1": 0.85, "rows": 10}
    return {
        "labels": dict.fromkeys(names, rates),
        "confusion": {name: {name: 8, names[n - 1]: 2} for n, name in enumerate(names)},
        "calibration": {
            "ece": 0.05,
            "bins": [{"low": 0.9, "high": 1.0, "rows": 10, "confidence": 0.95, "right": 0.9}],
        },
    }


def written(tmp_path: Path, **changes) -> str:
    report([write(tmp_path, "run", record(**changes))], str(tmp_path / "report.html"))
    return (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("labels", [2, 100])
def test_hostile_labels_of_any_number_are_text(tmp_path, labels):
    page = written(tmp_path, evaluation=evaluation(labels))
    assert HOSTILE not in page
    assert "label 0 &lt;/title&gt;&lt;img src=x" in page
    assert not re.search(r"""\sstyle=|\son\w+=["']|<script|href=|src=["']""", page), "the policy allows none"
    assert page.count("<rect") == 0
    pictures = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    assert all(picture.get("aria-label") for picture in pictures)
    assert len(pictures) == 4  # two curves, confusion, calibration; laps without seconds have no picture
    assert ("Lowest F1 first" in page) == (labels == 100)
    assert ("75 more labels" in page) == (labels == 100)


def test_several_runs_show_speed_up_and_money(tmp_path):
    write(tmp_path, "runs/one", record())
    write(tmp_path, "runs/two", record(workers=2, spread="average", rows_per_second=150.0, seconds=20.0))
    report([str(tmp_path / "runs")], str(tmp_path / "report.html"), price=0.4)
    page = (tmp_path / "report.html").read_text()
    assert "Speed-up by workers, relative to one" in page
    assert "Money against speed" in page
    assert "<td>1.50</td><td>75%</td>" in page
    assert "<h2>one: the run with the best score</h2>" in page


def test_records_of_other_kinds_have_pages_too(tmp_path):
    history = [{"messages": 100 * n, "loss": 1 / n} for n in range(1, 5)]
    ledger = {"read": 3, "learnt": 2, "empty": 0, "rejected": 1}
    stream = {"history": history, "ledger": ledger}
    page = written(tmp_path / "a", stream=stream, scores={"stream": []}, laps=[])
    assert "Loss of the messages as they came" in page
    assert "3 read = 2 learnt + 0 empty + 1 rejected" in page
    assert "report with --data" in page
    one = {"train": [{"epoch": 1, "loss": 0.5}]}
    assert "There was one epoch." in written(tmp_path / "b", scores=one)


def test_a_damaged_record_is_told_in_a_sentence(tmp_path):
    for number, wrong in enumerate(({"labels": 3}, {"labels": {"a": {}}}, [1])):
        with pytest.raises(InputError, match=r"run/record.json is damaged"):
            written(tmp_path / str(number), evaluation=wrong)


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", None)
    with pytest.raises(MissingPartError, match=r"manyhands\[report\]"):
        written(tmp_path)
    assert not (tmp_path / "report.html").exists()


@given(st.lists(st.tuples(st.floats(0, 1, width=32), st.booleans()), min_size=1, max_size=50))
@settings(max_examples=30)
def test_every_prediction_is_in_one_bin(predictions):
    said, right = (np.array(column) for column in zip(*predictions, strict=True))
    found = reliability(said.astype(np.float32), right.astype(bool))
    assert sum(b["rows"] for b in found["bins"]) == len(predictions)
    assert 0 <= found["ece"] <= 1
    assert all(b["low"] - 1e-6 <= b["confidence"] <= b["high"] + 1e-6 for b in found["bins"])


def test_the_largest_cells_are_kept(monkeypatch):
    monkeypatch.setattr("manyhands.evaluation.details.MOST_CELLS", 2)
    truth, predicted = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 1, 2])
    assert confusion(truth, predicted, ["a", "b", "c"]) == {"a": {"a": 2}, "b": {"b": 2}}


def test_names_are_data_in_expressions():
    names = ["'];alert(1)//", "\\", "𝔘"]
    spelt = charts._literal(names)
    assert json.loads(spelt.replace("'", '"')) == names


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run on a prepared dataset: its record has all that a report shows."""
    folder = tmp_path_factory.mktemp("report")
    texts = {1.0: "awful rude slow", 3.0: "fine plain usual", 5.0: "great fresh kind"}
    rows = [(f"{words} dinner number {n}", stars) for n in range(300) for stars, words in texts.items()]
    prepare([str(write_jsonl(folder / "reviews.json", rows))], str(folder / "data"), labels="stars")
    train(folder / "data", folder / "run", epochs=3, threads=1)
    report([str(folder / "run")], str(folder / "report.html"))
    return folder


def test_a_real_run_tells_all_that_a_report_needs(run):
    found = RunRecord("run", json.loads((run / "run/record.json").read_text())).facts
    tested, details = found["scores"]["test"], found["evaluation"]
    rows = found["data"]["splits"]["test"]
    assert sum(rates["rows"] for rates in details["labels"].values()) == rows == tested["rows"]
    counts = [(t, p, n) for t, row in details["confusion"].items() for p, n in row.items()]
    assert sum(n for *_, n in counts) == rows
    assert sum(n for t, p, n in counts if t == p) == round(tested["accuracy"] * rows)
    assert sum(b["rows"] for b in details["calibration"]["bins"]) == rows
    assert found["data"]["ledger"]["read"] == 900
    so_far = [lap["learning_seconds"] for lap in found["laps"]]
    assert so_far == sorted(so_far)
    assert so_far[-1] == found["learning_seconds"]
    assert (found["learns"], found["traffic"]["bytes_per_worker"]) == ("labels", 0)


def test_other_rows_can_be_reported_on(run, tmp_path):
    more = write_jsonl(tmp_path / "more.json", [("great fresh kind", 5.0), ("awful rude slow", 5.0)])
    out = tmp_path / "other.html"
    report([str(run / "run")], str(out), data=[str(more)])
    assert "On 2 test rows" in out.read_text()
    with pytest.raises(UsageError, match="exists already"):
        report([str(run / "run")], str(out))


def test_the_page_in_a_browser(browser: Any, run: Path, tmp_path: Path) -> None:  # noqa: F811
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs axe-playwright-python"
    ).Axe()
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()
    fetched: list[str] = []
    complaints: list[str] = []
    tab.on("request", lambda asked: fetched.append(asked.url))
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto((run / "report.html").as_uri())
    assert tab.title() == "run · manyhands"
    titles = tab.locator("h2").all_inner_texts()
    assert titles[:4] == ["Result", "Learning", "Confusion and calibration", "Labels"]
    assert tab.locator("figure svg").count() == 5
    for details in tab.locator("summary").all():
        details.click()
    for size, (width, height) in SIZES.items():
        for scheme, ink in INKS.items():
            tab.set_viewport_size({"width": width, "height": height})
            tab.emulate_media(color_scheme=scheme)
            text = tab.locator("figure svg text").first
            assert text.evaluate("e => getComputedStyle(e).fill") == ink
            assert tab.locator("figure svg").first.bounding_box()["width"] > 300, "as wide as a phone"
            assert tab.evaluate("document.documentElement.scrollWidth") == width
            tab.screenshot(path=tmp_path / f"report-{size}-{scheme}.png", full_page=True)
            if (size, scheme) in (("phone", "dark"), ("desktop", "light")):  # each takes seconds
                found = axe.run(tab).response["violations"]
                assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    context.close()
    assert fetched == [(run / "report.html").as_uri()]
    assert complaints == []
