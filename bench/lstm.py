"""Our ``lstm`` beside PyTorch's, padded as in the study that this project began from, and packed.

The model is the study's: 10,003 words, vectors of 100 numbers, two layers of 32, the last state,
100 words of a text at most. All learn whole batches with Adam, on the same threads; each way runs
several times in turn and the best counts.
"""

import argparse
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from manyhands.models.learner import Piece
from manyhands.models.recurrent.lstm import Lstm
from manyhands.models.recurrent.sequences import Sequences, find_words
from manyhands.models.recurrent.settings import LstmSettings
from manyhands.records import Resources, Silent
from manyhands.settings import TextSettings
from manyhands.text.corpus import corpus_of
from manyhands.text.labelled_rows import LabelledRows, Labels
from manyhands.text.normalise import Normaliser
from manyhands.text.ragged import from_strings
from manyhands.training.exchange import Alone
from measure import save

WORDS, LENGTH, BATCH, ROWS, ROUNDS, THREADS = 10_003, 100, 256, 4096, 3, 2
SETTINGS = LstmSettings(
    vocabulary_size=WORDS,
    dim=100,
    hidden_size=32,
    layers=2,
    max_length=LENGTH,
    batch_size=BATCH,
    pooling="last",
    min_count=1,
)
# Of texts with these lengths, 88 % have 100 words at most.
LOG_MEAN, LOG_SPREAD = 3.6, 0.855


def made_up(natural: bool) -> LabelledRows:
    """Words as frequent as in a language."""
    draw = np.random.default_rng(0)
    chances = 1 / np.arange(1, WORDS + 1)
    lengths = np.full(ROWS, LENGTH)
    if natural:
        lengths = np.clip(draw.lognormal(LOG_MEAN, LOG_SPREAD, ROWS), 1, 1000).astype(int)
    words = draw.choice(WORDS, int(lengths.sum()), p=chances / chances.sum())
    ends = np.cumsum(lengths)
    return examples(
        [" ".join(f"w{n}" for n in words[end - size : end]) for end, size in zip(ends, lengths, strict=True)]
    )


def tripadvisor(data: Path) -> LabelledRows:
    """Reviews that are mostly longer than what is read of them."""
    path = data / "reviews" / "tripadvisor_polarity" / "test.csv.zst"
    with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
        return examples(stream.read(ROWS * 4096).decode("utf-8", "ignore").splitlines()[:ROWS])


def amazon(data: Path) -> LabelledRows:
    """Reviews of musical instruments, of natural lengths."""
    path = data / "reviews" / "amazon" / "Musical_Instruments_5.json.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return examples([json.loads(line).get("reviewText", "") for line in file])


def examples(texts: list[str]) -> LabelledRows:
    corpus = corpus_of(Normaliser(TextSettings()).ragged(from_strings(texts)))
    labels = np.random.default_rng(1).integers(0, 2, len(texts)).astype(np.int32)
    return LabelledRows(corpus, Labels.single(labels, ["no", "yes"]), np.ones(len(texts), np.float32))


def ours(rows: LabelledRows, crew: Alone) -> Callable[[], None]:
    resources = Resources(THREADS, 4 << 30)
    learner = Lstm.begin(SETTINGS, rows, None, resources, Silent(), Alone())
    feed = learner.feed(rows, SETTINGS.seed, resources, Silent(), Alone())

    def epoch() -> None:
        for block in range(len(feed)):
            with crew.clock.on("load"):
                rows_of = feed.piece(Piece(block, 0, feed.rows(block)), 0)
            learner.learn(rows_of, 0.001, block, crew)

    return epoch


def theirs(rows: LabelledRows, packed: bool) -> Callable[[], None]:
    """A plain loop over shuffled batches, padded to the full length."""
    sequences = Sequences(rows.corpus, find_words(rows.corpus, WORDS, 1, THREADS, None), LENGTH)
    table, lengths = _padded(sequences, len(rows))
    labels = torch.from_numpy(rows.labels.ids.astype(np.int64))
    embedding, net, output = (
        torch.nn.Embedding(WORDS, 100),
        torch.nn.LSTM(100, 32, 2, batch_first=True),
        torch.nn.Linear(32, 2),
    )
    parameters = [*embedding.parameters(), *net.parameters(), *output.parameters()]
    optimizer, cost = torch.optim.Adam(parameters), torch.nn.CrossEntropyLoss()

    def epoch() -> None:
        for some in torch.randperm(len(table)).split(BATCH):
            vectors = embedding(table[some])
            if packed:
                _, (states, _) = net(pack_padded_sequence(vectors, lengths[some], True, enforce_sorted=False))
                last = states[-1]
            else:
                last = net(vectors)[0][torch.arange(len(some)), lengths[some] - 1]
            loss = cost(output(last), labels[some])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return epoch


def _padded(sequences: Sequences, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    packed = sequences.pack(np.arange(rows))
    table = np.zeros((rows, LENGTH), np.int64)
    for step, (start, count) in enumerate(zip(packed.starts, packed.counts, strict=True)):
        table[packed.rows[:count], step] = packed.words[start : start + count]
    lengths = np.ones(rows, np.int64)
    lengths[packed.rows] = np.maximum(packed.lengths, 1)
    return torch.from_numpy(table), torch.from_numpy(lengths)


def contest(rows: LabelledRows) -> dict[str, Any]:
    crew = Alone()
    ways = {
        "ours": ours(rows, crew),
        "PyTorch, padded": theirs(rows, False),
        "PyTorch, packed": theirs(rows, True),
    }
    best = dict.fromkeys(ways, 0.0)
    for _ in range(ROUNDS):
        for name, epoch in ways.items():
            began = time.perf_counter()
            epoch()
            best[name] = max(best[name], len(rows) / (time.perf_counter() - began))
    spent = crew.clock.seconds
    return {
        **{name: round(speed) for name, speed in best.items()},
        "times the padded": round(best["ours"] / best["PyTorch, padded"], 2),
        "our time in %": {name: round(100 * x / sum(spent.values())) for name, x in spent.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder with the real review sets")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    sets = {"full length": made_up(False), "natural lengths": made_up(True)}
    if options.data:
        sets |= {"TripAdvisor": tripadvisor(options.data), "Amazon, instruments": amazon(options.data)}
    results = {name: contest(rows) for name, rows in sets.items()}
    print(json.dumps(results, indent=1))
    save("lstm", {"rows_per_second": results, "threads": THREADS, "rows": ROWS, "batch": BATCH})


if __name__ == "__main__":
    main()
