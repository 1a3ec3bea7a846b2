"""The field scanner beside Python's JSON parser, on whole and on broken lines."""

import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from manyhands.data.sources.json_scanner import ABSENT, field_values, find_fields
from manyhands.text.ragged import from_strings

NAMES = ["text", "label"]
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)
objects = st.dictionaries(
    st.one_of(st.sampled_from([*NAMES, "textual", "lab\n", ""]), st.text()), anything, max_size=6
)


def scan(line: bytes) -> dict[str, str | None] | None:
    """What the scanner finds; None if it does not take the line."""
    rows = from_strings([b"before", line, b"after"])
    places = find_fields(rows, np.array([False, True, False]), NAMES)
    assert not places.accepted[0] and not places.accepted[2]
    if not places.accepted[1]:
        assert (places.kinds == ABSENT).all()
        return None
    return {
        name: field_values(rows, places, k).strings()[1] if places.kinds[1, k] != ABSENT else None
        for k, name in enumerate(NAMES)
    }


def by_python(line: str) -> dict[str, object] | None:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        found = json.loads(line, parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def same(found: str | None, expected: object) -> bool:
    if expected is None or isinstance(expected, str):
        return found == expected
    return found is not None and json.loads(found) == expected


@given(objects, st.booleans(), st.sampled_from([None, 1]), st.sampled_from(["", " ", "\r", "\t "]))
@example({"text": 'a"b\\c\n\u00e9\U0001f600/', "label": [1, {"x": []}]}, True, None, "")
@example({"text": "seven77", "label": "exactly8"}, False, None, "\r")
def test_whole_lines(found: dict[str, object], ascii_only: bool, indent: int | None, end: str) -> None:
    line = json.dumps(found, ensure_ascii=ascii_only, indent=indent)
    try:
        encoded = (line + end).encode()
    except UnicodeEncodeError:
        return
    scanned = scan(encoded)
    if scanned is None:  # it may leave to Python what is unusual: escapes in keys
        assert any(json.dumps(key, ensure_ascii=ascii_only)[1:-1] != key for key in keys_of(found))
        return
    assert all(same(scanned[name], found.get(name)) for name in NAMES), (line, scanned)


def keys_of(value: object) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(key for inner in value.values() for key in keys_of(inner))]
    return [key for inner in value for key in keys_of(inner)] if isinstance(value, list) else []


@given(objects, st.data())
def test_broken_lines_are_never_taken_for_whole(found: dict[str, object], data: st.DataObject) -> None:
    line = json.dumps(found)
    at = data.draw(st.integers(0, len(line)))
    insert = data.draw(
        st.sampled_from(
            ["", '"', "\\", "{", "}", "[", "]", ",", ":", "0", "-", ".", "e", "n", "x", "\x01", "\\u"]
        )
    )
    removed = data.draw(st.integers(0, 3))
    broken = line[:at] + insert + line[at + removed :]
    scanned = scan(broken.encode())
    if scanned is not None:
        expected = by_python(broken)
        assert expected is not None, broken
        assert all(same(scanned[name], expected.get(name)) for name in NAMES), broken


@pytest.mark.parametrize(
    "line",
    ["", "{", "}", "{}x", "[]", "5", '"text"', "{,}", '{"a":1,}', '{"a" 1}', '{"a":}', '{"a":01}', '{"a":1.}',
     '{"a":.5}', '{"a":-}', '{"a":1e}', '{"a":tru}', '{"a":nul}', '{"a":[1,]}', '{"a":[1}', '{"a":"\\x41"}',
     '{"a":"\\u12"}', '{"a":"\\ud800"}', '{"a":"tab\there"}', '{"text":NaN}', '{"a":1}{"b":2}', "{'a': 1}",
     '{"a":' * 70 + "1" + "}" * 70],
)  # fmt: skip
def test_what_is_not_taken(line: str) -> None:
    assert scan(line.encode()) is None


def test_of_equal_keys_the_last_counts() -> None:
    assert scan(b'{"text": "one", "text": "two", "label": 5.0}') == {"text": "two", "label": "5.0"}
    assert scan(b'{"text": "one", "text": null}') == {"text": None, "label": None}
    assert scan(b'{"inner": {"text": "deep"}, "label": ["a", "b"]}') == {"text": None, "label": '["a", "b"]'}
