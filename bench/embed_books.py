"""The job of the study on streaming embeddings, again: 6 MB of books, ten negatives, windows of five.

Its figures are pairs of a word and a neighbour per second, on a GTX 970 and on four machines. Ours are on two
cores, the time of learning alone. The PIP loss is taken after every epoch, beside that of vectors drawn at
random and of zeros. Letters: the study's sizes for speed; for rare words, ``charlstm`` beside ``skipgram``
on the same text, on those pairs in which a word was never seen.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from manyhands.bundle.word_vectors import embedding_of
from manyhands.evaluation.pip import pip_report
from manyhands.evaluation.similarity import evaluate_similarity
from manyhands.evaluation.sppmi import signal, sppmi
from manyhands.evaluation.wordsets import SimilaritySet, find_sets
from manyhands.machine import resources_for
from manyhands.models.learner import Piece
from manyhands.models.words.charlstm import CharLstm, CharLstmSettings
from manyhands.models.words.skipgram import Skipgram, SkipgramSettings
from manyhands.records import Silent
from manyhands.run.train import train
from manyhands.settings import TextSettings
from manyhands.text.corpus import corpus_of
from manyhands.text.labelled_rows import LabelledRows, Labels
from manyhands.text.normalise import Normaliser
from manyhands.text.ragged import from_strings
from manyhands.training.exchange import Alone
from manyhands.training.loop import fit
from manyhands.training.schedule import Schedule
from manyhands.training.state import Plan, State
from measure import save

STUDY = {"window": 5, "negatives": 10, "sample": 2e-3, "min_count": 3}
GPU = {200: 117_100, 50: 155_049}  # the study's best of one GTX 970, pairs/s
CLUSTER = {200: 72_023, 50: 197_818}  # its best of four machines
GPU_LETTERS = 2_954
EPOCHS, ROUNDS, THREADS = 5, 3, 2
RARE_TEXT_BYTES = 10_000_000


def read(path: Path) -> str:
    with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
        return str(stream.read().decode("utf-8"))


def rows_of_split(text: str) -> LabelledRows:
    rows = [row for row in text.splitlines() if row.strip()]
    corpus = corpus_of(Normaliser(TextSettings(punctuation="drop")).ragged(from_strings(rows)))
    return LabelledRows(corpus, Labels.none(len(corpus)), np.ones(len(corpus), np.float32))


def learn(
    kind: Any, settings: Any, examples: LabelledRows, epochs: int, each_epoch: Any = None
) -> tuple[Any, State]:
    """The product's own loop; ``each_epoch`` looks at the learner."""
    resources = resources_for(None, THREADS)
    learner = kind.begin(settings, examples, None, resources, Silent(), Alone())
    feed = learner.feed(examples, settings.seed, resources, Silent(), Alone())
    words = sum(feed.rows(block) for block in range(len(feed)))
    plan = Plan(
        epochs, Schedule(settings.learning_rate, words * epochs), settings.seed, THREADS, patience=epochs
    )
    state = State()
    validate = None if each_epoch is None else lambda: each_epoch(learner)
    fit(learner, feed, plan, Alone(), state, validate=validate, keep=lambda _: None, progress=Silent())
    return learner, state


def pairs_per_second(state: State) -> float:
    return float(sum(epoch["examples"] for epoch in state.history) / state.seconds)


def words_of_study(examples: LabelledRows, dim: int) -> dict[str, Any]:
    """Speed, best of several; and the PIP loss after every epoch."""
    settings = SkipgramSettings(**STUDY, dim=dim, epochs=EPOCHS)
    speeds = [pairs_per_second(learn(Skipgram, settings, examples, EPOCHS)[1]) for _ in range(ROUNDS)]
    learner = Skipgram.begin(settings, examples, None, resources_for(None, THREADS), Silent(), Alone())
    sampling = learner.model().sampling
    numbers = sampling.numbers(examples.corpus).astype(np.int64)
    matrix = sppmi(examples.corpus, numbers, len(sampling.vocabulary), window=5, shift=10.0, threads=THREADS)
    reference = signal(matrix, dim)

    def pip(learner: Any) -> dict[str, float]:
        vectors = np.ascontiguousarray(learner.model().vectors)
        return {**pip_report(vectors, reference).facts(), "naive": naive(vectors, matrix)}

    untrained = pip(learner)
    trained, state = learn(Skipgram, settings, examples, EPOCHS, pip)
    random = np.random.default_rng(0).normal(size=(len(reference), dim)).astype(np.float32)
    random *= np.float32(np.linalg.norm(trained.model().vectors) / np.linalg.norm(random))
    return {
        "pairs_an_epoch": state.history[0]["examples"],
        "pairs_per_second": round(max(speeds)),
        "study_gpu": GPU[dim],
        "study_four_machines": CLUSTER[dim],
        "pip": {
            "random": round(untrained["random"], 4),
            "zeros": untrained["zero"],
            "untrained": round(untrained["relative"], 4),
            "by_epoch": [round(epoch["relative"], 4) for epoch in state.history],
            "naive": {
                "zeros": round(naive(0 * random, matrix)),
                "random": round(naive(random, matrix)),
                "by_epoch": [round(epoch["naive"]) for epoch in state.history],
            },
        },
    }


def naive(vectors: Any, matrix: Any) -> float:
    """The study's figure: the distance of all inner products from the shifted PMI matrix itself."""
    own = np.linalg.norm(vectors.T.astype(np.float64) @ vectors) ** 2
    both = float((vectors * (matrix @ vectors)).sum(dtype=np.float64))
    return float(np.sqrt(own - 2 * both + float((matrix.data.astype(np.float64) ** 2).sum())))


def letters_of_study(examples: LabelledRows) -> dict[str, Any]:
    settings = CharLstmSettings(**STUDY, dim=200, hidden_size=512, char_dim=128)
    resources = resources_for(None, THREADS)
    learner = CharLstm.begin(settings, examples, None, resources, Silent(), Alone())
    feed = learner.feed(examples, settings.seed, resources, Silent(), Alone())
    speeds = []
    for block in range(4 * ROUNDS):
        piece = feed.piece(Piece(block, 0, feed.rows(block)), 0)
        began = time.perf_counter()
        pairs = learner.learn(piece, settings.learning_rate, 0, Alone()).rows
        speeds.append(pairs / (time.perf_counter() - began))
    return {
        "pairs_per_second": round(max(speeds)),
        "median": round(float(np.median(speeds))),
        "study_gpu": GPU_LETTERS,
    }


def rare_words(text: str, sets: Path, folder: Path, epochs: int) -> dict[str, Any]:
    """Both models on the same text; a pair with a word that a model cannot make a vector for has cosine 0."""
    (folder / "text.txt").write_text(text)
    judged = next(found for found in find_sets(sets).similarity if found.name == "RW")
    models: dict[str, Any] = {}
    unseen: SimilaritySet | None = None
    for name, settings in (
        ("skipgram", {"model": "skipgram"}),
        ("skipgram --char-ngrams 3-6", {"model": "skipgram", "char_ngrams": "3-6"}),
        ("charlstm", {"model": "charlstm", "epochs": epochs}),
    ):
        trained = train(folder / "text.txt", folder / name.replace(" ", "-"), threads=THREADS, **settings)
        embedding = embedding_of(trained.bundle)
        report = evaluate_similarity(embedding, judged)
        if unseen is None:  # the same words for all: they learn from the same text
            known = (embedding.places(judged.first) >= 0) & (embedding.places(judged.second) >= 0)
            rows = np.flatnonzero(~known).tolist()
            first, second = ([side[k] for k in rows] for side in (judged.first, judged.second))
            unseen = SimilaritySet("unseen", first, second, judged.scores[rows])
        models[name] = {
            **report.facts(),
            "spearman_unseen": evaluate_similarity(embedding, unseen).spearman_all,
            "seconds": round(trained.record["seconds"], 1),
        }
        print(name, models[name], flush=True)
    return {
        "text_bytes": len(text),
        "pairs": len(judged),
        "unseen_pairs": len(unseen or ()),
        "models": models,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--letters-epochs", type=int, default=2)
    chosen = parser.parse_args()
    examples = rows_of_split(read(chosen.data / "corpus" / "books_6mb.txt.zst"))
    record: dict[str, Any] = {"tokens": examples.corpus.tokens, "job": STUDY, "epochs": EPOCHS}
    for dim in GPU:
        record[f"skipgram {dim}"] = words_of_study(examples, dim)
        print(dim, record[f"skipgram {dim}"], flush=True)
    record["charlstm 200"] = letters_of_study(examples)
    print("charlstm", record["charlstm 200"], flush=True)
    wiki = read(chosen.data / "corpus" / "fil8_text8_prefix.txt.zst")[:RARE_TEXT_BYTES]
    with tempfile.TemporaryDirectory() as folder:
        record["rare words"] = rare_words(wiki, chosen.data, Path(folder), chosen.letters_epochs)
    save("embed_books", record)


if __name__ == "__main__":
    main()
