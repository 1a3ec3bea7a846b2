"""Imported models beside fastText itself, and stored parts made to do harm."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyhands.errors import InputError
from manyhands.formats.fasttext_model import ImportedFastText
from manyhands.text.ragged import from_strings
from tests.formats.fasttext_zoo import (
    HARMED,
    RECIPES,
    Recipe,
    fasttext_module,
    load_model,
    scores_by_fasttext,
    store_and_load,
    texts,
    train,
    words,
)

ROWS = 1000
INSIDE_LOG = 1e-5  # what fastText adds to every probability that it gives
STEP = 0.0079  # between two of its tabled sigmoids


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_probabilities_are_those_of_fasttext(recipe: Recipe, tmp_path: Path) -> None:
    path = train(recipe, tmp_path)
    model, rows = load_model(path), texts(ROWS)
    prefix = "" if recipe.prefix == "#" else recipe.prefix
    assert sorted(prefix + label for label in model.labels) == sorted(
        fasttext_module().load_model(str(path)).get_labels()
    )
    expected, scores = (
        scores_by_fasttext(path, rows, model.labels, prefix),
        model.scores_of(from_strings(rows)),
    )
    assert scores.dtype == np.float32 and scores.max() > 0.25 and np.isfinite(scores).all()
    loss = recipe.train["loss"]
    # The tree adds it at every node of a path.
    away = np.abs(expected - scores - (0 if loss == "hs" else INSIDE_LOG))
    if loss in ("ova", "ns"):  # another way to round may now and then take the step beside
        assert (away > 1e-6).mean() < 1e-3 and away.max() < STEP
    else:
        assert away.max() < (1e-4 if loss == "hs" else 1e-5)
        chosen = scores[np.arange(len(rows)), expected.argmax(axis=1)]
        assert (chosen >= scores.max(axis=1) - 1e-4).all()
        assert np.abs(scores.sum(axis=1) - 1).max() < 1e-4
    again = store_and_load(model)
    assert again.labels == model.labels
    assert np.array_equal(again.scores_of(from_strings(rows)), scores)


def test_a_text_in_which_nothing_is_known_has_zeros(tmp_path: Path) -> None:
    """Without a line end in its training, a model does not even know that."""
    data = tmp_path / "one-line.txt"
    data.write_text("__label__a __label__b one two three")
    path = tmp_path / "one-line.bin"
    fasttext_module().train_supervised(str(data), dim=4, thread=12, verbose=0).save_model(str(path))
    model, rows = load_model(path), ["", "four", "one", "__label__a", "four two"]
    scores = model.scores_of(from_strings(rows))
    assert (scores[[0, 1, 3]] == 0).all() and (scores[[2, 4]] > 0.4).all()
    assert np.abs(scores_by_fasttext(path, rows, model.labels, "__label__") - scores).max() < 1e-4


def test_line_ends_are_blanks_and_no_text_is_no_row(tmp_path: Path) -> None:
    model = load_model(train(RECIPES[1], tmp_path))
    one, two = words(1, 2)
    scores = model.scores_of(from_strings([f"{one}\n{two}\n", f"{one} {two}"]))
    assert np.array_equal(scores[0], scores[1])
    assert model.scores_of(from_strings([])).shape == (0, 5)


def test_bytes_that_are_not_utf8_are_scored(tmp_path: Path) -> None:
    model = load_model(train(RECIPES[1], tmp_path))
    rng = random.Random(5)
    scores = model.scores_of(from_strings([rng.randbytes(rng.randint(0, 300)) for _ in range(500)]))
    assert np.abs(scores.sum(axis=1) - 1).max() < 1e-4


def test_weights_that_are_not_numbers_spoil_only_their_texts(tmp_path: Path) -> None:
    model = load_model(train(RECIPES[0], tmp_path))
    spoilt, rows = {k: v.copy() for k, v in model.arrays().items()}, from_strings(words(1, 300))
    word = 40
    spoilt["input_dense"][word] = np.nan
    begin, end = spoilt["starts"][word : word + 2]
    hit = [row == spoilt["letters"][begin:end].tobytes().decode() for row in words(1, 300)]
    before, after = model.scores_of(rows), ImportedFastText.from_parts(model.facts(), spoilt).scores_of(rows)
    assert any(hit) and (after[hit] == 0).all()
    assert np.array_equal(after[~np.array(hit)], before[~np.array(hit)])


def _mix(values: np.ndarray) -> np.ndarray:
    values = values.astype(np.uint64)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        values = (values ^ values >> np.uint64(33)) * np.uint64(factor)
    return values ^ values >> np.uint64(33)


def _find_colliding_words(count: int) -> list[bytes]:
    rng = np.random.default_rng(1)
    letters = rng.integers(97, 123, (count * 4500, 8), np.uint8)
    value = np.full(len(letters), 2166136261, np.uint64)
    for i in range(8):
        value = (value ^ letters[:, i].astype(np.uint64)) * np.uint64(16777619) & np.uint64(0xFFFFFFFF)
    return [row.tobytes() for row in letters[_mix(value) & np.uint64(4095) == 0][:count]]


def test_made_up_collisions_are_refused(tmp_path: Path) -> None:
    model = load_model(train(HARMED[2], tmp_path))
    facts, arrays = model.facts(), model.arrays()
    numbers = np.arange(8_000_000)
    chosen = numbers[_mix(numbers) & np.uint64(4095) == 0][:1500].astype(np.int32)
    facts["args"]["bucket"] = 8_000_000
    many = {**arrays, "kept_buckets": chosen, "kept_rows": np.zeros(len(chosen), np.int32)}
    with pytest.raises(InputError, match="collide"):
        ImportedFastText.from_parts(facts, many)
    entries = from_strings(_find_colliding_words(1500))
    facts["labels"] = [str(n) for n in range(1500)]
    counts = np.ones(1500, np.int64)
    outputs = np.zeros((1500, 3), np.float32)
    many = {**arrays, "letters": entries.data, "starts": entries.offsets, "label_counts": counts}
    with pytest.raises(InputError, match="collide"):
        ImportedFastText.from_parts(facts, {**many, "output_dense": outputs})


Change = Callable[[dict[str, Any], dict[str, Any]], object]


def _changes() -> Iterator[tuple[str, Change]]:
    def put(name: str, value: object) -> Change:
        return lambda facts, arrays: arrays.__setitem__(name, value)

    def fact(name: str, value: object) -> Change:
        return lambda facts, arrays: facts.__setitem__(name, value)

    def arg(name: str, value: object) -> Change:
        return lambda facts, arrays: facts["args"].__setitem__(name, value)

    def edit(name: str, at: int, value: float) -> Change:
        return lambda facts, arrays: arrays[name].__setitem__(at, value)

    for name in ("letters", "starts", "label_counts", "input_codes", "input_centroids", "output_dense"):
        yield f"no {name}", lambda facts, arrays, name=name: arrays.pop(name)
        yield f"float64 {name}", put(name, np.zeros(4))
        yield f"short {name}", lambda f, arrays, name=name: arrays.update({name: arrays[name][:-1]})
        yield f"flat {name}", lambda f, arrays, name=name: arrays.update({name: arrays[name][None]})
    for name in ("starts", "input_centroids", "output_dense"):
        yield (
            f"big end of {name}",
            lambda facts, arrays, name=name: arrays.update(
                {name: arrays[name].astype(arrays[name].dtype.newbyteorder(">"))}
            ),
        )
    yield "no array", put("letters", [1, 2, 3])
    for at, value in ((1, 1 << 40), (1, -5), (0, 1), (-1, 0)):
        yield f"starts {at} {value}", edit("starts", at, value)
    yield "codes beside floats", put("input_dense", np.zeros((2, 3), np.float32))
    yield "rows of pruning", edit("kept_rows", 0, 1 << 20)
    yield "negative row", edit("kept_rows", 0, -1)
    yield "negative bucket", edit("kept_buckets", 0, -1)
    yield "no kept rows", lambda facts, arrays: arrays.pop("kept_rows")
    yield "norm codes", lambda facts, arrays: arrays.pop("input_norm_codes")
    yield "norms", put("input_norms", np.zeros(255, np.float32))
    yield "not a number", edit("output_dense", 1, np.nan)
    yield "infinite", edit("output_dense", 0, np.inf)
    yield "huge weight", edit("output_dense", 0, 1e30)
    yield "huge count", edit("label_counts", 0, 1 << 60)
    yield "negative count", edit("label_counts", 0, -1)
    for name, value in (("dim", 4), ("dim", 0), ("maxn", 10**6), ("bucket", 0), ("loss", "other")):
        yield f"{name} {value}", arg(name, value)
    for name, value in (("dim", "3"), ("bucket", None), ("minn", True), ("maxn", -1), ("other", 1)):
        yield f"{name} {value}", arg(name, value)
    for name, wrong in (("labels", ["0"] * 5), ("labels", [0]), ("labels", "01234"), ("labels", [])):
        yield f"{name} {wrong}", fact(name, wrong)
    for name, wrong in (("dsub", [0, 1]), ("dsub", [4, 1]), ("dsub", 2), ("pruned", 1), ("pruned", False)):
        yield f"{name} {wrong}", fact(name, wrong)
    yield "no args", lambda facts, arrays: facts.pop("args")


def test_stored_parts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    model = load_model(train(HARMED[2], tmp_path))
    for name, change in _changes():
        facts, arrays = model.facts(), {key: array.copy() for key, array in model.arrays().items()}
        change(facts, arrays)
        with pytest.raises(InputError):
            ImportedFastText.from_parts(facts, arrays)
            pytest.fail(f"taken: {name}")
