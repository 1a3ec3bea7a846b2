"""UTF-8 checks beside Python's own decoder."""

from hypothesis import given
from hypothesis import strategies as st

from manyhands.text.ragged import from_strings
from manyhands.text.utf8 import blank, valid_utf8


def decodes(row: bytes) -> bool:
    try:
        row.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


mixed = st.lists(
    st.one_of(st.binary(max_size=6), st.text(max_size=6).map(str.encode), st.just(b"plain letters")),
    max_size=6,
).map(b"".join)


@given(st.lists(mixed, min_size=1, max_size=20))
def test_agrees_with_python(rows: list[bytes]) -> None:
    assert valid_utf8(from_strings(rows)).tolist() == [decodes(row) for row in rows]


def test_blank() -> None:
    assert blank(from_strings(["", " \t\r\n", "x", " x "])).tolist() == [True, True, False, False]
