"""Label schemes: what each label becomes, and what is refused."""

import pyarrow as pa

from manyhands.data.labels import NEUTRAL, NO_LABEL, LabelEncoder


def classes(
    scheme: str, labels: list[str | None], rates_stars: bool = True
) -> tuple[list[list[int]], list[str], dict[int, str]]:
    encoder = LabelEncoder(scheme)  # type: ignore[arg-type]
    ids, bad = encoder.encode(pa.array(labels), len(labels))
    found = encoder.classes(rates_stars)
    return [found.of_label[i] if i >= 0 else [] for i in ids], found.names, bad


def test_polarity() -> None:
    found, names, bad = classes("polarity", ["1", "2.0", "3", "4.0", "5", "6", "good", None, "4.5"])
    assert found[:5] == [[0], [0], [0], [1], [1]]
    assert names == ["negative", "positive"]
    assert set(bad) == {5, 6, 7, 8} and bad[7] == NO_LABEL
    assert bad[5] == "the label is not a whole number of stars from 1 to 5"


def test_polarity_of_zhangs_classes() -> None:
    assert classes("polarity", ["1", "2"], rates_stars=False)[0] == [[0], [1]]
    assert classes("polarity", ["1", "2"], rates_stars=True)[0] == [[0], [0]]
    assert classes("polarity", ["1", "2", "5"], rates_stars=False)[0] == [[0], [0], [1]]


def test_strict_polarity_leaves_three_out() -> None:
    found, _, bad = classes("polarity-strict", ["2", "3", "4"])
    assert found == [[0], [], [1]] and bad == {1: NEUTRAL}


def test_stars() -> None:
    assert classes("stars", ["5", "1"])[0] == [[4], [0]]


def test_as_is_sorts_numbers_as_numbers_and_takes_several() -> None:
    assert classes("as-is", ["10", "9", "9.0"])[:2] == ([[1], [0], [0]], ["9", "10"])
    assert classes("as-is", ["sport", "b\x1fa", "a\x1fb"])[:2] == ([[2], [0, 1], [0, 1]], ["a", "b", "sport"])


def test_as_is_keeps_names_apart() -> None:
    found, names, _ = classes("as-is", ["1_1", "11", "007", "7", "1e3", "1000", "5.0", "5"])
    assert len(names) == 7 and found[6] == found[7] and set(names) >= {"1_1", "007", "1e3"}


def test_none() -> None:
    encoder = LabelEncoder("none")
    assert encoder.encode(None, 3)[0].tolist() == [0, 0, 0]
    assert encoder.classes(False).names == []


def test_order_gives_values_only_where_labels_are_numbers() -> None:
    encoder = LabelEncoder("as-is")
    encoder.encode(pa.array(["b", "a"]), 2)
    rank, values = encoder.order()
    assert rank.tolist() == [1, 0] and values.tolist() == [0, 0]
    stars = LabelEncoder("stars")
    stars.encode(pa.array(["5", "1", "3"]), 3)
    rank, values = stars.order()
    assert rank.tolist() == [2, 0, 1] and values.tolist() == [5, 1, 3]
