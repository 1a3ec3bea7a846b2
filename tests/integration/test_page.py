"""The page of words on a plane, as a real browser shows it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest
from tests.conftest import Outcome, need

from manyhands.report.page import page
from manyhands.report.plane import Plane, plane
from manyhands.text.embedding import Embedding
from manyhands.text.vocabulary import Vocabulary

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
HOSTILE = "<img src=x onerror=document.title='hacked'>"
WORDS = ["king", "queen", "kingdom", "viking", "King", "50%", HOSTILE, *(f"word{n}" for n in range(60))]
PATIENCE = 120_000  # milliseconds


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    need("chromium (Debian: apt-get install chromium)", path)
    with sync_api.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def drawn() -> Plane:
    vectors = np.random.default_rng(2).normal(size=(len(WORDS), 8)).astype(np.float32)
    counts = np.arange(len(WORDS), 0, -1)
    return plane(Embedding(Vocabulary(pa.array(WORDS, pa.large_string()), counts), vectors))


@pytest.fixture
def opened(browser: Any, drawn: Plane, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open the page; at the end, nothing must have been fetched, and nothing complained about."""
    file = tmp_path / "words.html"
    file.write_text(page(drawn, name="<i>wiki</i>", model="skip-gram", dim=8), "utf-8")
    size = {"width": 1000, "height": 700}
    context = browser.new_context(viewport=size, reduced_motion="reduce", has_touch=True)
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()
    fetched: list[str] = []
    complaints: list[str] = []
    tab.on("request", lambda request: fetched.append(request.url.split("#")[0]))
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))

    def go(fragment: str = "") -> Any:
        tab.goto(file.as_uri() + fragment)
        return tab

    yield go
    context.close()
    assert set(fetched) == {file.as_uri()}
    assert complaints == []


def listed(tab: Any) -> list[tuple[str, str]]:
    rows = tab.locator("#panel .neighbour")
    return [(row.locator(".word").inner_text(), row.locator(".cosine").inner_text()) for row in rows.all()]


def computed(drawn: Plane, word: str) -> list[tuple[str, str]]:
    place = drawn.words.index(word)
    pairs = zip(drawn.neighbours[place], drawn.cosines[place], strict=True)
    return [(drawn.words[near], f"{np.rint(cosine * 1000) / 1000:.3f}") for near, cosine in pairs]


def chosen(tab: Any, word: str) -> None:
    tab.locator("#panel h2", has_text=word).wait_for()
    assert tab.locator("#panel h2").inner_text() == word


def test_a_search_leads_to_the_neighbours(opened: Callable[..., Any], drawn: Plane) -> None:
    tab = opened()
    assert tab.title() == "<i>wiki</i> · words on a plane"
    assert "67 words, 8 dimensions, model: skip-gram" in tab.locator("footer").inner_text()
    tab.keyboard.press("/")
    tab.keyboard.type("kin")
    assert tab.locator("#suggestions li").all_inner_texts() == ["king", "kingdom", "King", "viking"]
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    chosen(tab, "kingdom")
    assert listed(tab) == computed(drawn, "kingdom")
    tab.fill("#search", "King")
    tab.keyboard.press("Enter")
    chosen(tab, "King")
    assert tab.url.endswith("#King")
    tab.fill("#search", "nowhere")
    assert tab.locator("#nothing").inner_text() == "None of the 67 words shown fits."
    tab.keyboard.press("Escape")
    assert tab.input_value("#search") == ""
    tab.keyboard.press("Escape")
    assert tab.locator("#panel h2").count() == 0


def test_a_click_on_a_neighbour_chooses_it(opened: Callable[..., Any], drawn: Plane) -> None:
    tab = opened("#queen")
    chosen(tab, "queen")
    third = computed(drawn, "queen")[2][0]
    tab.locator("#panel .neighbour").nth(2).click()
    chosen(tab, third)
    assert listed(tab) == computed(drawn, third)
    tab.go_back()
    chosen(tab, "queen")


def test_a_click_on_the_map_chooses_the_word_there(opened: Callable[..., Any], drawn: Plane) -> None:
    tab = opened()
    click_on(tab, "king")  # the most frequent word is always written
    chosen(tab, "king")
    assert listed(tab) == computed(drawn, "king")
    tab.keyboard.press("Escape")
    before = where(tab, "king")
    tab.mouse.move(*before)
    tab.mouse.wheel(0, -500)
    tab.mouse.move(before[0] + 30, before[1] + 40)
    tab.mouse.down()
    tab.mouse.move(before[0] + 130, before[1] + 90, steps=4)
    tab.mouse.up()
    assert where(tab, "king") == pytest.approx((before[0] + 100, before[1] + 50), abs=1)
    assert tab.locator("#panel h2").count() == 0  # a drag is no click
    click_on(tab, "king")
    chosen(tab, "king")


def where(tab: Any, word: str) -> tuple[float, float]:
    box, at = tab.locator("#canvas").bounding_box(), tab.evaluate("word => window.plane.place(word)", word)
    return box["x"] + at["x"], box["y"] + at["y"]


def click_on(tab: Any, word: str) -> None:
    tab.mouse.click(*where(tab, word))


def test_two_fingers_zoom(opened: Callable[..., Any]) -> None:
    tab = opened()
    touch = tab.context.new_cdp_session(tab)

    def fingers(kind: str, apart: float) -> None:
        points = [{"x": 660 + side * apart, "y": 350, "id": side} for side in (-1, 1)] if apart else []
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    (left, _), (right, _) = where(tab, "king"), where(tab, "queen")
    fingers("touchStart", 40)
    for apart in (60, 80, 100, 120):
        fingers("touchMove", apart)
    fingers("touchEnd", 0)
    (new_left, _), (new_right, _) = where(tab, "king"), where(tab, "queen")
    assert (new_right - new_left) / (right - left) == pytest.approx(3, rel=0.02)
    assert new_left == pytest.approx(660 + 3 * (left - 660), abs=8)  # the spot between them stays
    assert tab.locator("#panel h2").count() == 0


def test_hostile_words_do_no_harm(opened: Callable[..., Any], drawn: Plane) -> None:
    tab = opened()
    tab.fill("#search", "<img")
    assert tab.locator("#suggestions li").all_inner_texts() == [HOSTILE]
    tab.keyboard.press("Enter")
    chosen(tab, HOSTILE)
    tab.locator("#panel .neighbour").first.click()
    tab.wait_for_timeout(100)
    assert tab.title() == "<i>wiki</i> · words on a plane"
    assert tab.locator("img").count() == 0


@pytest.mark.parametrize(
    ("fragment", "word"), [(quote(HOSTILE), HOSTILE), ("50%", "50%"), ("QUEEN", "queen"), ("King", "King")]
)
def test_an_address_opens_at_its_word(opened: Callable[..., Any], fragment: str, word: str) -> None:
    chosen(opened(f"#{fragment}"), word)


def test_a_phone_shows_map_and_neighbours_without_scrolling_sideways(opened: Callable[..., Any]) -> None:
    tab = opened("#king")
    tab.set_viewport_size({"width": 360, "height": 740})
    canvas, panel = tab.locator("#canvas").bounding_box(), tab.locator("#panel h2").bounding_box()
    assert canvas["width"] == 360
    assert canvas["height"] > 250
    assert panel["y"] < 740
    assert tab.evaluate("document.documentElement.scrollWidth") == 360


def test_the_command_writes_the_page(manyhands: Callable[..., Outcome], tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 4))
    lines = [f"w{n} " + " ".join(f"{value:.4f}" for value in row) for n, row in enumerate(rows)]
    (tmp_path / "small.vec").write_text("\n".join(["20 4", *lines]) + "\n")
    done = manyhands("project", "small.vec", "--words", 15)
    assert (done.code, done.out) == (0, "words.html: 15 words; open it in a browser\n"), done.err
    first = (tmp_path / "words.html").read_bytes()
    again = manyhands("project", "small.vec")
    assert again.code == 2
    assert again.err == ("manyhands: words.html exists already; choose another --out, or pass --overwrite\n")
    assert manyhands("project", "small.vec", "--words", 15, "--overwrite").code == 0
    assert (tmp_path / "words.html").read_bytes() == first
