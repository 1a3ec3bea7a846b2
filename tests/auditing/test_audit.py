"""Audits of rows with planted label errors: what is listed, where it stands, why, and in which forms."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manyhands
from manyhands.auditing.audit import Audit, audit
from manyhands.auditing.folds import folds_by_text
from manyhands.auditing.ranking import confidently_wrong, rank
from manyhands.data.labelled_rows import read_rows
from manyhands.data.prepare.prepare import prepare
from manyhands.errors import InputError, UsageError
from manyhands.machine import resources_for
from manyhands.records import SPLITS, Silent
from manyhands.report.audit_page import write_page
from manyhands.settings import PrepareSettings
from tests.integration.test_page import PATIENCE, browser  # noqa: F401 - a fixture

ROWS, PLANTED = 600, 20
WORDS = {"good": "great fresh kind lovely warm".split(), "bad": "awful rude slow cold stale".split()}
OTHER = {"good": "bad", "bad": "good"}
HOSTILE = "<img src=x onerror=document.title='hacked'>"
SMALL = {"min_count": 1}


def planted_rows() -> tuple[list[tuple[str, str]], set[int]]:
    """Rows of two labels, some of them wrong; and the numbers of the wrong ones, from 0."""
    random = np.random.default_rng(4)
    wrong = set(random.choice(ROWS, PLANTED, replace=False).tolist())
    rows = []
    for number in range(ROWS):
        label = "good" if number % 2 else "bad"
        words = [*random.choice(WORDS[label], 4), *(f"w{n}" for n in random.integers(0, 60, 4))]
        rows.append((OTHER[label] if number in wrong else label, f"{' '.join(words)} n{number}"))
    return rows, wrong


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[int]]:
    """A CSV file with a header, so that row 0 stands on line 2; and the lines of the wrong labels."""
    rows, wrong = planted_rows()
    path = tmp_path_factory.mktemp("audit") / "rows.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("label", "text"), *rows])
    return path, {number + 2 for number in wrong}


@pytest.fixture(scope="module")
def found(planted: tuple[Path, set[int]]) -> Audit:
    return audit(planted[0], top=PLANTED, **SMALL)


def test_planted_errors_are_listed_first_where_they_stand(found, planted):
    path, lines = planted
    assert {suspect.line for suspect in found.suspects} == lines
    assert {suspect.file for suspect in found.suspects} == {str(path)}
    assert (found.rows, found.unjudged, found.left_out) == (ROWS, 0, 0)
    assert PLANTED // 2 <= found.estimated_wrong <= PLANTED + 5
    chances = [suspect.probability for suspect in found.suspects]
    assert chances == sorted(chances)
    assert all(suspect.suggested_label == OTHER[suspect.label] for suspect in found.suspects)


def test_reasons_are_the_words_of_the_other_label(found):
    for suspect in found.suspects:
        assert suspect.why
        assert set(suspect.why[0].ngram.split()) & {*WORDS[suspect.suggested_label]}
        assert all(part.part > 0 for part in suspect.why)
        assert all(part.ngram in suspect.text for part in suspect.why)


def test_the_same_list_on_any_number_of_threads(planted, found):
    again = audit(planted[0], top=PLANTED, threads=1, **SMALL)
    assert again.suspects == found.suspects


def test_all_splits_of_a_dataset_are_audited(planted, tmp_path):
    prepare([str(planted[0])], tmp_path / "data", valid=0.2, test=0.2)
    found = audit(tmp_path / "data", top=PLANTED, **SMALL)
    dataset = manyhands.open_dataset(tmp_path / "data")
    assert {suspect.file for suspect in found.suspects} == {*SPLITS}
    rows, wrong = planted_rows()
    # The last word of a row stands nowhere else: of test rows, the dataset does not know it.
    shown = {" ".join(suspect.text.split()[:8]) for suspect in found.suspects}
    assert shown == {rows[number][1].rpartition(" ")[0] for number in wrong}
    assert all(suspect.why for suspect in found.suspects)
    for suspect in found.suspects:
        split = dataset[suspect.file]
        assert dataset.label_names[split.labels[suspect.line]] == suspect.label
    with pytest.raises(UsageError, match="--labels is for raw files"):
        audit(tmp_path / "data", labels="as-is")


@pytest.mark.parametrize("model", ["fasttext", "lstm"])
def test_every_classifier_can_judge(planted, model):
    settings = {"fasttext": {"dim": 8, "epochs": 20}, "lstm": {"dim": 8, "hidden_size": 8, "epochs": 4}}[
        model
    ]
    found = audit(
        planted[0],
        model=model,
        top=PLANTED,
        folds=3,
        learning_rate=0.5 if model == "fasttext" else 0.02,
        **settings,
    )
    assert len({suspect.line for suspect in found.suspects} & planted[1]) >= PLANTED * 3 // 4
    assert (found.model, found.folds) == (model, 3)


def test_labels_that_no_other_row_has_are_not_judged(tmp_path):
    path = tmp_path / "rows.txt"
    rows = [f"__label__{'a' if n % 2 else 'b'} {'x' if n % 2 else 'y'} w{n}" for n in range(40)]
    path.write_text("\n".join([*rows, "__label__rare something else"]))
    found = audit(path, **SMALL)
    assert found.unjudged == 1
    assert "rare" not in {suspect.label for suspect in found.suspects}


@pytest.mark.parametrize(
    ("text", "settings", "error", "says"),
    [
        ("__label__a __label__b x\n__label__b y\n", {}, InputError, "have several labels each"),
        ("__label__a x\n__label__a y\n", {}, InputError, "all rows to train on have the same label"),
        ("__label__a x\n__label__b x\n", {}, InputError, "too few different texts"),
        ("__label__a x\n__label__b y\n", {"top": 0}, UsageError, "--top must be 1 or more"),
        ("__label__a x\n__label__b y\n", {"folds": 1}, UsageError, "--folds must be from 2 to 100"),
        ("__label__a x\n__label__b y\n", {"model": "skipgram"}, UsageError, "learns no labels"),
        ("__label__a x\n__label__b y\n", {"epoch": 3}, UsageError, "did you mean 'epochs'"),
    ],
)
def test_what_cannot_be_audited_is_said(tmp_path, text, settings, error, says):
    (tmp_path / "rows.txt").write_text(text)
    with pytest.raises(error, match=says):
        audit(tmp_path / "rows.txt", **settings)


def test_equal_texts_share_a_fold(tmp_path):
    lines = [f"__label__{n % 2} text number {n % 50}" for n in range(200)]
    (tmp_path / "rows.txt").write_text("\n".join(lines))
    rows = read_rows(
        [str(tmp_path / "rows.txt")], PrepareSettings(), resources_for(None, 1), Silent()
    ).examples
    folds = folds_by_text(rows, 5, seed=0)
    assert (folds.reshape(4, 50) == folds[:50]).all()
    assert len({*folds.tolist()}) == 5
    assert (folds != folds_by_text(rows, 5, seed=1)).any()


@given(st.integers(2, 6), st.integers(1, 60), st.integers(0, 2**32))
def test_ranked_rows_have_not_their_likeliest_label(classes, count, seed):
    random = np.random.default_rng(seed)
    likely = random.dirichlet(np.ones(classes), count).astype(np.float32)
    labels, judged = random.integers(0, classes, count), random.random(count) < 0.8
    ranked = rank(likely, labels, judged)
    assert {*ranked.rows.tolist()} == {*np.flatnonzero((likely.argmax(axis=1) != labels) & judged).tolist()}
    assert (np.diff(ranked.probabilities) >= 0).all()
    assert (ranked.probabilities < ranked.suggested_probabilities).all()
    wrong = confidently_wrong(likely, labels)
    assert not (wrong & (likely.argmax(axis=1) == labels)).any()


def test_the_command_line_lists_writes_and_refuses(planted, manyhands, tmp_path):
    path, lines = planted
    done = manyhands(
        "audit",
        str(path),
        "--top",
        "5",
        "--min-count",
        "1",
        "--out",
        "all.csv",
        "--html",
        "page.html",
    )
    assert done.code == 0, done.err
    assert f"of {ROWS} rows look more like another label" in done.out
    with (tmp_path / "all.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert {int(row["line"]) for row in written[:PLANTED]} == lines
    assert [*written[0]] == [
        "file", "line", "label", "suggested_label", "probability", "suggested_probability", "text",
    ]  # fmt: skip
    assert "<h2>1. " in (tmp_path / "page.html").read_text()
    again = manyhands("audit", str(path), "--out", "all.csv")
    assert (again.code, "exists already" in again.err) == (2, True)
    facts = json.loads(manyhands("audit", str(path), "--top", "3", "--min-count", "1", "--json").out)
    assert len(facts["suspects"]) == 3
    assert facts["suspicious"] == len(written)
    assert {*facts["suspects"][0]} == {*written[0], "why"}
    bad = manyhands("audit", str(path), "--out", "all.txt")
    assert (bad.code, "must end in .csv or .jsonl" in bad.err) == (2, True)


def test_rows_are_written_as_json_lines_too(found, tmp_path):
    found.suspicious.write(str(tmp_path / "all.jsonl"))
    rows = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert len(rows) == len(found.suspicious)
    assert [row["line"] for row in rows[:PLANTED]] == [suspect.line for suspect in found.suspects]


def test_the_page_in_a_browser(browser, tmp_path):  # noqa: F811
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs axe-playwright-python"
    ).Axe()
    rows = [
        (HOSTILE if n % 2 else "plain", f"{'x y' if n % 2 else 'z'} {HOSTILE} w{n} " * 20) for n in range(60)
    ]
    rows[0] = (HOSTILE, rows[0][1])
    path, out = tmp_path / "rows.csv", tmp_path / "page.html"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("label", "text"), *rows])
    found = audit(path, **SMALL)
    write_page(found, str(out))
    context = browser.new_context(viewport={"width": 390, "height": 844})
    context.set_default_timeout(PATIENCE)
    tab, fetched, complaints = context.new_page(), list[str](), list[str]()
    tab.on("request", lambda asked: fetched.append(asked.url))
    tab.on("console", lambda message: complaints.append(message.text))
    tab.goto(out.as_uri())
    assert tab.title() == "rows.csv · manyhands"
    titles = tab.locator("h2").all_inner_texts()
    assert titles[:3] == ["Result", "Labels", f"1. {HOSTILE}: looks like plain"]
    assert tab.locator("img").count() == 0
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    tab.screenshot(path=tmp_path / "audit.png", full_page=True)
    violations = axe.run(tab).response["violations"]
    assert [one["id"] for one in violations if one["impact"] in ("serious", "critical")] == []
    context.close()
    assert (fetched, complaints) == ([out.as_uri()], [])
