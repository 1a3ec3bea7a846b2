"""Small real fastText models, trained by fastText itself, and texts to try them on."""

import importlib.util
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manyhands.formats.fasttext import read_fasttext
from manyhands.formats.fasttext_model import ImportedFastText
from tests.conftest import need

LETTERS = "abcdefghijklmnopqrstuvwxyzéß日本語😀"


def words(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(LETTERS, k=rng.randint(1, 8))) for _ in range(count)]


def write_training(path: Path, labels: int, prefix: str = "__label__", vocabulary: int = 600) -> Path:
    """Lines whose words tell their label, most of the time; the first labels are the frequent ones."""
    rng, known = random.Random(7), words(1, vocabulary)
    lines = []
    for n in range(max(1000, 4 * labels)):
        label = n % labels if n < 2 * labels else min(int(rng.expovariate(8 / labels)), labels - 1)
        first = label * vocabulary // labels
        picked = [known[(first + rng.randint(0, vocabulary // 3)) % vocabulary] for _ in range(8)]
        lines.append(f"{prefix}{label} {' '.join(picked)}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def texts(count: int) -> list[str]:
    """Known, unknown, foreign and strange; some empty, some very long."""
    rng, pool = random.Random(3), words(1, 600) + words(2, 300)
    strange = ["</s>", "__label__0", "__label__none", "__label__", "#0", "<", ">", "é" * 700, "</s", "\x01"]
    blanks = [" ", " ", " ", "  ", "\t", "\r", "\v", "\f", "\0", " \t "]
    made = ["", " ", "\t", "zzzz qqqq", "日本語" * 40, "</s>", " ".join(rng.choices(pool, k=20_000))]
    while len(made) < count:
        picked = rng.choices(pool, k=rng.randint(0, 25))
        if rng.random() < 0.2:
            picked.insert(rng.randint(0, len(picked)), rng.choice(strange))
        made.append("".join(word + rng.choice(blanks) for word in picked))
    return made


class Recipe(NamedTuple):
    """How a model is trained and, if at all, quantised."""

    name: str
    train: dict[str, Any]
    quantise: dict[str, Any] | None = None
    labels: int = 5
    prefix: str = "__label__"


CHARACTERS = {"minn": 2, "maxn": 4}
QUANTISED = {"qnorm": False, "qout": False}
RECIPES = [
    Recipe("softmax", {"loss": "softmax"}),
    Recipe("softmax-bigrams-characters", {"loss": "softmax", "wordNgrams": 2, **CHARACTERS}),
    Recipe("softmax-minn-alone", {"loss": "softmax", "minn": 3}),
    Recipe("softmax-letters", {"loss": "softmax", "minn": 1, "maxn": 2}),
    Recipe("ova-trigrams", {"loss": "ova", "wordNgrams": 3}),
    Recipe("ova-characters", {"loss": "ova", **CHARACTERS}),
    Recipe("ns-bigrams", {"loss": "ns", "wordNgrams": 2, "neg": 3}),
    Recipe("hs", {"loss": "hs"}),
    Recipe("hs-many-labels", {"loss": "hs", "wordNgrams": 2, "epoch": 60, **CHARACTERS}, labels=290),
    Recipe("hs-one-label", {"loss": "hs"}, labels=1),
    Recipe("other-prefix", {"loss": "softmax", "wordNgrams": 2}, prefix="#"),
    Recipe("quantised", {"loss": "softmax", "wordNgrams": 2}, QUANTISED),
    Recipe("quantised-norms", {"loss": "softmax", **CHARACTERS}, {"qnorm": True, "dsub": 3}),
    Recipe(
        "quantised-cutoff",
        {"loss": "softmax", "wordNgrams": 3, **CHARACTERS},
        {"cutoff": 700, "retrain": True, "qnorm": True},
    ),
    Recipe("quantised-words-only", {"loss": "softmax"}, {"cutoff": 300}),
    Recipe("quantised-hs", {"loss": "hs", "wordNgrams": 2}, {"cutoff": 500}),
    Recipe("quantised-ova", {"loss": "ova", **CHARACTERS}, {"cutoff": 500, "qnorm": True}),
    Recipe(
        "quantised-output",
        {"loss": "softmax", "epoch": 40, "wordNgrams": 2},
        {"qout": True, "qnorm": True},
        labels=290,
    ),
    Recipe(
        "quantised-output-hs",
        {"loss": "hs", "epoch": 60},
        {"qout": True, "cutoff": 500, "dsub": 4},
        labels=290,
    ),
]
TINY = {"dim": 3, "bucket": 40, "wordNgrams": 2, "minn": 2, "maxn": 3, "epoch": 2}
HARMED = [
    Recipe("tiny", {**TINY, "loss": "softmax"}),
    Recipe("tiny-hs", {**TINY, "loss": "hs"}),
    Recipe("tiny-quantised", {**TINY, "bucket": 300, "loss": "ova"}, {"cutoff": 290, "qnorm": True}),
    Recipe("tiny-quantised-output", {**TINY, "loss": "hs"}, {"qout": True, "qnorm": True}, labels=260),
]


def fasttext_module() -> Any:
    need("fasttext-numpy2", importlib.util.find_spec("fasttext"))
    import fasttext

    return fasttext


def train(recipe: Recipe, folder: Path) -> Path:
    data = write_training(folder / f"{recipe.name}.txt", recipe.labels, recipe.prefix)
    # With ten threads or fewer fastText 0.9.3 leaves a part of its input as the memory was.
    settings = {"dim": 10, "bucket": 2000, "epoch": 10, "lr": 0.8, "thread": 12, "verbose": 0, **recipe.train}
    model = fasttext_module().train_supervised(str(data), label=recipe.prefix, **settings)
    if recipe.quantise is not None:
        model.quantize(input=str(data), thread=12, verbose=0, **recipe.quantise)
    path = folder / f"{recipe.name}.{'bin' if recipe.quantise is None else 'ftz'}"
    model.save_model(str(path))
    return path


def scores_by_fasttext(
    path: Path, rows: list[str], labels: list[str], prefix: str
) -> npt.NDArray[np.float32]:
    """What fastText says; zero where it leaves a label out."""
    column = {prefix + label: i for i, label in enumerate(labels)}
    out = np.zeros((len(rows), len(labels)), np.float32)
    names, shares = fasttext_module().load_model(str(path)).predict(rows, k=-1)
    for row, (said, share) in enumerate(zip(names, shares, strict=True)):
        out[row, [column[name] for name in said]] = share
    return out


def load_model(path: Path) -> ImportedFastText:
    return ImportedFastText(read_fasttext(path))


def store_and_load(model: ImportedFastText) -> ImportedFastText:
    return ImportedFastText.from_parts(model.facts(), {k: v.copy() for k, v in model.arrays().items()})
