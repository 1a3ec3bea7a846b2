"""Our ``lstm`` beside PyTorch's: padded as in the study that this project began from, packed, and bucketed.

The model is the study's: 10,003 words, vectors of 100 numbers, two layers of 32, the last state,
100 words of a text at most. All learn whole batches with Adam, on the same threads; each way runs
several times in turn and the best counts. Bucketed is PyTorch as an expert would run it: texts of one length
share a batch, which is padded to its own longest text, and Adam touches only the vectors of words that occur.
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


class Theirs:
    """PyTorch's network, with a plain loop over batches in random order."""

    def __init__(self, rows: LabelledRows, sparse: bool = False) -> None:
        sequences = Sequences(rows.corpus, find_words(rows.corpus, WORDS, 1, THREADS, None), LENGTH)
        self._table, self._lengths = _padded(sequences, len(rows))
        self._labels = torch.from_numpy(rows.labels.ids.astype(np.int64))
        self._embedding = torch.nn.Embedding(WORDS, 100, sparse=sparse)
        self._net = torch.nn.LSTM(100, 32, 2, batch_first=True)
        self._output = torch.nn.Linear(32, 2)
        dense = [*self._net.parameters(), *self._output.parameters()]
        vectors = list(self._embedding.parameters())
        self._optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Adam(dense if sparse else dense + vectors)
        ]
        if sparse:
            self._optimizers.append(torch.optim.SparseAdam(vectors))
        self._cost = torch.nn.CrossEntropyLoss()

    def padded(self) -> None:
        for some in torch.randperm(len(self._table)).split(BATCH):
            self._learn(some, self._last_of_padded(some, LENGTH))

    def packed(self) -> None:
        for some in torch.randperm(len(self._table)).split(BATCH):
            vectors, lengths = self._embedding(self._table[some]), self._lengths[some]
            _, (states, _) = self._net(pack_padded_sequence(vectors, lengths, True, enforce_sorted=False))
            self._learn(some, states[-1])

    def bucketed(self) -> None:
        shuffled = torch.randperm(len(self._table))
        batches = shuffled[self._lengths[shuffled].argsort(stable=True)].split(BATCH)
        for k in torch.randperm(len(batches)).tolist():
            some = batches[k]
            self._learn(some, self._last_of_padded(some, int(self._lengths[some].max())))

    def _last_of_padded(self, some: torch.Tensor, length: int) -> torch.Tensor:
        states = self._net(self._embedding(self._table[some, :length]))[0]
        return states[torch.arange(len(some)), self._lengths[some] - 1]

    def _learn(self, some: torch.Tensor, last: torch.Tensor) -> None:
        loss = self._cost(self._output(last), self._labels[some])
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self._optimizers:
            optimizer.step()


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
        "PyTorch, padded": Theirs(rows).padded,
        "PyTorch, packed": Theirs(rows).packed,
        "PyTorch, bucketed": Theirs(rows, sparse=True).bucketed,
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
        "times the bucketed": round(best["ours"] / best["PyTorch, bucketed"], 2),
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
