"""The normaliser beside a slow one written in plain Python, and the cases that bite."""

import html
import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.settings import TextSettings
from manyhands.text.characters import MARK, SIGN, SINGLE, SKIP, SPACE, WORD, characters
from manyhands.text.normalise import LONGEST_WORD, Normaliser
from manyhands.text.ragged import from_strings

normalise = Normaliser(TextSettings())
drop = Normaliser(TextSettings(punctuation="drop"))


@pytest.mark.parametrize(
    ("raw", "tokens"),
    [
        ("good.Bad", "good . bad"),
        ("DON'T stop", "don't stop"),
        ("don’t", "don't"),
        ("'quoted' and rock 'n' roll", "' quoted ' and rock ' n ' roll"),
        ("not no never n't", "not no never n't"),
        ("one<br />two<BR>three<br/>four", "one two three four"),
        ("a < b > c <b>", "a < b > c < b >"),
        ("fish &amp; chips &#39;n&#x27; &lt;br&gt;", "fish & chips ' n ' < br >"),
        ("&nosuch; &;  &#xZZ; &#0; &#1114112;", "& nosuch ; & ; & # xzz ; & # 0 ; & # 1114112 ;"),
        ("a&#@@;b &#65;&#x42;&#146;c", "a & # @ @ ; b ab'c"),
        ("AT&T ?a=1&copy=2", "at & t ? a = 1 & copy = 2"),
        ("Straße ÉCOLE ΣΊΣΥΦΟΣ İstanbul", "straße école σίσυφοσ istanbul"),
        ("日本語 text カナ", "日 本 語 text カ ナ"),
        ("soft\u00adhyphen zero\u200bwidth", "softhyphen zero width"),
        ("e\u0301te\u0301 \u0301x", "e\u0301te\u0301 x"),
        ("❤️ 10/10!!!", "❤ 10 / 10 ! ! !"),
        ("tab\tnew\nline\rnul\x00end", "tab new line nul end"),
        ("", ""),
        ("   ", ""),
    ],
)
def test_tokens(raw: str, tokens: str) -> None:
    assert normalise(raw) == tokens


@given(
    st.lists(
        st.text("aZ9 .,'&<é\n", max_size=150) | st.sampled_from(["x" * 127, "don't . stop "]), max_size=4
    ),
    st.sampled_from([normalise, drop, Normaliser(TextSettings(lower=False))]),
)
def test_texts_are_the_same_alone_and_before_others(texts: list[str], chosen: Normaliser) -> None:
    """64 bytes at a time are read where so many follow, and single ones where the texts end."""
    together = chosen.ragged(from_strings([*texts, "behind " * 30])).strings()
    assert together[:-1] == [chosen(text) for text in texts]


def test_dropping_punctuation_never_glues_words() -> None:
    assert drop("good.Bad, (very)bad!it's") == "good bad very bad it's"


def test_case_and_html_can_be_kept() -> None:
    assert Normaliser(TextSettings(lower=False))("Good BAD") == "Good BAD"
    assert Normaliser(TextSettings(html=False))("a&amp;b<br />") == "a & amp ; b < br / >"


def test_a_word_without_end_is_cut() -> None:
    words = normalise("a" * (10 * LONGEST_WORD) + "é" * LONGEST_WORD).split()
    assert "".join(words) == "a" * (10 * LONGEST_WORD) + "é" * LONGEST_WORD
    assert max(len(word.encode()) for word in words) <= LONGEST_WORD + 3


def slowly(text: str) -> list[str]:
    """The rule in plain Python, for text without HTML, one character after the other."""
    kinds, lower = characters()
    text = text.replace("’", "'")
    tokens: list[str] = []
    open_word = False
    for i, character in enumerate(text):
        kind = kinds[ord(character)]
        follows = text[i + 1 : i + 2]
        inside = character == "'" and open_word and bool(follows) and kinds[ord(follows)] == WORD
        if kind == SKIP or (kind == MARK and not open_word):
            continue
        small = chr(lower[ord(character)])
        if kind in (WORD, MARK) or inside:
            if open_word and len(tokens[-1].encode()) < LONGEST_WORD:
                tokens[-1] += small
            else:
                tokens.append(small)
            open_word = True
        else:
            open_word = False
            if kind in (SIGN, SINGLE):
                tokens.append(small)
    return tokens


@given(st.lists(st.text(max_size=200), max_size=20))
def test_equals_the_slow_rule(texts: list[str]) -> None:
    plain = Normaliser(TextSettings(html=False))
    rows = plain.ragged(from_strings(texts))
    assert rows.strings() == [" ".join(slowly(text)) for text in texts]


@given(st.lists(st.text(max_size=100), max_size=20))
def test_offsets_stay_within_the_text(texts: list[str]) -> None:
    rows = normalise.ragged(from_strings(texts))
    assert rows.offsets[0] == 0
    assert (np.diff(rows.offsets) >= 0).all()
    assert rows.offsets[-1] <= len(rows.data)
    assert len(rows) == len(texts)
    for text in rows.strings():
        assert text == " ".join(text.split(" ")) and "  " not in text and text == text.strip()


@given(st.text(max_size=100))
def test_normalising_twice_changes_nothing(text: str) -> None:
    plain = Normaliser(TextSettings(html=False))
    once = plain(text)
    assert plain(once) == once


@given(st.integers(0, 0x110000), st.booleans())
def test_numbered_entities_are_pythons(code: int, hexadecimal: bool) -> None:
    raw = f"x &#x{code:x}; y" if hexadecimal else f"x &#{code}; y"
    expected = html.unescape(raw)
    if "\ufffd" not in expected and html.unescape(raw) != "x  y":
        assert normalise(raw) == Normaliser(TextSettings(html=False))(expected)


@given(st.sampled_from(sorted(html.entities.html5)))
def test_named_entities_are_pythons(name: str) -> None:
    if name.endswith(";"):
        raw = f"x &{name} y"
        expected = re.sub(r"\s", " ", html.unescape(raw))
        assert normalise(raw) == Normaliser(TextSettings(html=False))(expected)


def test_the_table_agrees_with_this_pythons_unicode() -> None:
    with np.load("src/manyhands/text/unicode.npz") as table:
        version = ".".join(str(n) for n in table["version"])
    kinds, lower = characters()
    if version != unicodedata.unidata_version:
        pytest.skip(f"the table is of Unicode {version}, this Python of {unicodedata.unidata_version}")
    for code in range(0x3000):
        category = unicodedata.category(chr(code))
        if category[0] in "LN":
            assert kinds[code] in (WORD, SINGLE)
        if category[0] in "PS":
            assert kinds[code] == SIGN
        if category[0] == "Z":
            assert kinds[code] == SPACE
        assert lower[code] == ord(chr(code).lower()[0])
