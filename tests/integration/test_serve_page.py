"""The page of a service, in a real browser."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from tests.integration.test_page import PATIENCE, browser  # noqa: F401 - a fixture
from tests.models.test_convert import WORDS, trained
from tests.services import Running, running

from manyhands.run.train import train

HOSTILE = "<img src=x onerror=document.title='hacked'> great"
SIZES = {"phone": (390, 844), "desktop": (1280, 800)}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("classifier")
    trained(folder, 3)
    with running(folder / "run", "--name", "dinners") as service:
        yield service


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("vectors")
    lines = [" ".join(WORDS[label].split() * 3) for label in WORDS for _ in range(60)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    train(folder / "text.txt", folder / "run", model="skipgram", dim=8, epochs=1, min_count=1, threads=1)
    with running(folder / "run", "--name", "tastes") as service:
        yield service


@pytest.fixture
def opened(browser: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:  # noqa: F811
    """Open the page of a service; in the end, nobody else was asked, and nothing was complained about."""
    contexts: list[Any] = []
    fetched: list[str] = []
    complaints: list[str] = []
    home: list[str] = []

    def go(service: Running, size: str = "desktop", scheme: str = "light") -> Any:
        width, height = SIZES[size]
        viewport = {"width": width, "height": height}
        context = browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        tab = context.new_page()
        tab.on("request", lambda asked: fetched.append(asked.url))
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        home.append(f"http://127.0.0.1:{service.port}/")
        tab.goto(home[-1])
        # The page has asked what it serves. A condition to wait for would be evaluated from text, which the
        # page's own policy forbids.
        expect(tab).not_to_have_title("manyhands", timeout=30_000)
        return tab

    yield go
    for context in contexts:
        context.close()
    assert [url for url in fetched if not url.startswith((*home, "data:"))] == []
    assert [said for said in complaints if "status of 422" not in said] == []


def predict(tab: Any, text: str) -> None:
    tab.get_by_label("Text", exact=True).fill(text)
    tab.keyboard.press("Control+Enter")
    tab.locator("#verdict").wait_for()


def test_a_text_gets_its_label_and_every_word_a_colour(
    opened: Callable[..., Any], classifier: Running
) -> None:
    tab = opened(classifier)
    assert tab.title() == "dinners · manyhands"
    assert tab.locator("#facts").inner_text() == "ngrams, 3 labels"
    predict(tab, "Great fresh food, not awful")
    explained = classifier.ask("POST", "/explain", {"text": "Great fresh food, not awful"}).json()
    assert tab.locator("#verdict").inner_text() == f"good, {100 * explained['probability']:.1f} %"
    assert tab.locator("#scores li").count() == 3
    words = {word.inner_text(): word for word in tab.locator("#words span").all()}
    assert [*words] == [part["word"] for part in explained["words"]]
    assert words["great"].get_attribute("class") == "for"
    assert words["awful"].get_attribute("class") == "against"
    colours = [
        words[word].evaluate("e => getComputedStyle(e).backgroundColor") for word in ("great", "awful")
    ]
    assert colours[0] != colours[1]
    assert tab.locator("#embed").is_hidden()


def test_hostile_texts_do_no_harm(opened: Callable[..., Any], classifier: Running) -> None:
    tab = opened(classifier)
    predict(tab, HOSTILE)
    tab.locator("#words span").first.wait_for()
    assert tab.title() == "dinners · manyhands"
    assert tab.locator("img").count() == 0


def test_a_refusal_is_said(opened: Callable[..., Any], classifier: Running) -> None:
    tab = opened(classifier)
    tab.get_by_label("Text", exact=True).fill("a" * 100_001)
    tab.get_by_role("button", name="Predict").click()
    alert = tab.locator("#trouble")
    alert.filter(has_text="100,001 characters").wait_for()
    predict(tab, "great")
    assert alert.inner_text() == ""


def test_words_have_neighbours_and_a_map(opened: Callable[..., Any], vectors: Running) -> None:
    tab = opened(vectors)
    assert tab.locator("#classify").is_hidden()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.id") == "word"
    tab.keyboard.type("great")
    tab.keyboard.press("Enter")
    tab.locator("#near li").first.wait_for()
    expected = vectors.ask("POST", "/nearest", {"words": ["great"]}).json()["neighbours"][0]["nearest"]
    shown = tab.locator("#near button").all_inner_texts()
    assert shown == [near["word"] for near in expected]
    tab.get_by_role("button", name=shown[1], exact=True).click()
    tab.locator("#asked", has_text=shown[1]).wait_for()
    assert tab.input_value("#word") == shown[1]
    tab.get_by_text("Word map").click()
    frame = tab.frame_locator("#frame iframe")
    frame.locator("#search").fill("rude")
    frame.locator("#search").press("Enter")
    frame.locator("#panel h2", has_text="rude").wait_for()


def test_the_report_of_the_run_is_one_click_away(opened: Callable[..., Any], classifier: Running) -> None:
    tab = opened(classifier)
    tab.get_by_role("link", name="report of the run").click()
    tab.get_by_role("heading", name="Where the time went").wait_for()
    assert tab.title() == "run · manyhands"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["classifier", "vectors"])
def test_axe_finds_nothing_serious(
    opened: Callable[..., Any],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
    size: str,
    scheme: str,
) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs axe-playwright-python"
    ).Axe()
    tab = opened(request.getfixturevalue(kind), size, scheme)
    if kind == "classifier":
        predict(tab, "Great fresh food, but rude and slow and awful, strange zzyzx")
        tab.get_by_text("As numbers").click()
    else:
        tab.get_by_label("Word", exact=True).fill("great")
        tab.get_by_role("button", name="Find").click()
        tab.locator("#near li").first.wait_for()
        tab.get_by_text("Word map").click()
        tab.frame_locator("#frame iframe").locator("#search").wait_for()
    tab.screenshot(path=tmp_path / f"{kind}-{size}-{scheme}.png", full_page=True)
    found = [one for frame in tab.frames for one in axe.run(frame).response["violations"]]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    assert tab.evaluate("document.documentElement.scrollWidth") == SIZES[size][0]
