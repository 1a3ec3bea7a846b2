"""Messages of streams as rows: which fields, which labels, and where each message went."""

import json
from typing import Any

import pytest

from manyhands.data.messages import Classes, MessageParser
from manyhands.data.streams.stream import Messages
from manyhands.errors import InputError, UsageError
from manyhands.records import StreamLedger
from manyhands.settings import PrepareSettings


def messages(*texts: str | bytes, rejected: dict[int, str] | None = None) -> Messages:
    raw = [text if isinstance(text, bytes) else text.encode() for text in texts]
    return Messages(raw, [f"place {k}" for k in range(len(raw))], {"at": len(raw)}, rejected or {})


def parser(labelled: bool = True, **settings: Any) -> MessageParser:
    return MessageParser("here", PrepareSettings.create(**settings), None, labelled=labelled)


def test_json_with_stars() -> None:
    rows = [{"reviewText": f"text {k}", "overall": k} for k in (1, 5, 3)]
    reading = parser()
    parsed = reading.parse(messages(*map(json.dumps, rows), "{", '{"overall": 5}', '{"reviewText": " "}'))
    assert parsed.ledger == StreamLedger(read=6, learnt=3, empty=1, rejected=2)
    assert parsed.rejected == [("place 3", "not valid JSON"), ("place 4", "no field 'reviewText'")]
    assert reading.layout is not None
    assert reading.layout.scheme == "polarity"
    labelled = parsed.rows(Classes("polarity"))
    assert labelled.labels.ids.tolist() == [0, 1, 0]
    assert labelled.labels.names == ["negative", "positive"]


def test_labels_keep_their_numbers() -> None:
    reading, classes = parser(), Classes("as-is")
    first = reading.parse(messages("__label__z one", "__label__b two", "no label", b"__label__z \xff"))
    assert first.rows(classes).labels.ids.tolist() == [0, 1]
    assert [reason for _, reason in first.rejected] == ["no label", "not valid UTF-8"]
    second = reading.parse(messages("__label__a three", "__label__b __label__a four"))
    found = second.rows(classes).labels
    assert found.multi_label
    assert found.ids.tolist() == [2, 2, 1]
    assert classes.names == ["z", "b", "a"]


def test_taken_up_again() -> None:
    """What the first messages settled stays, whatever comes first the next time."""
    reading = parser()
    reading.parse(messages('{"body": "some text", "category": "a"}'))
    again = MessageParser("here", PrepareSettings(), reading.layout, labelled=True)
    parsed = again.parse(messages("junk", '{"body": "more", "category": "b"}'))
    assert parsed.ledger == StreamLedger(read=2, learnt=1, rejected=1)
    assert again.layout == reading.layout


def test_any_text_for_words() -> None:
    reading = parser(labelled=False, labels="none")
    assert reading.parse(messages("", "  ")).ledger == StreamLedger(read=2, empty=2)
    assert reading.layout is None, "blanks decide nothing"
    parsed = reading.parse(messages("Some words.", "", rejected={1: "longer than 3 bytes"}))
    assert parsed.rejected == [("place 1", "longer than 3 bytes")]
    assert parsed.ledger == StreamLedger(read=2, learnt=1, rejected=1)
    assert parsed.rows(None).corpus.words.strings() == ["some", "words", "."]


def test_mistakes() -> None:
    with pytest.raises(InputError, match="have no labels; send JSON"):
        parser().parse(messages("plain text"))
    with pytest.raises(UsageError, match="jsonl, labelled, text, not parquet"):
        parser(format="parquet")
    with pytest.raises(InputError, match="no field looks like the label"):
        parser().parse(messages('{"text": "a"}'))
