"""Judging a model while it learns from a stream."""

from collections.abc import Callable

from manyhands.bundle.bundle import Bundle
from manyhands.bundle.word_vectors import embedding_of
from manyhands.errors import UsageError
from manyhands.evaluation.evaluate import evaluate
from manyhands.evaluation.similarity import evaluate_similarity
from manyhands.evaluation.wordsets import find_sets
from manyhands.storage.files import StrPath
from manyhands.streaming.job import StreamJob

Judge = Callable[[Bundle], dict[str, float]]


def judge_for(job: StreamJob, on: StrPath | None) -> Judge:
    """By rows with labels, all of which must be judged; or for word vectors by similarity sets."""
    if job.labelled:
        if on is None:
            raise UsageError(
                "--evaluate-every needs rows with labels; name a file or a dataset by --evaluate-on"
            )
        return lambda bundle: _of_labels(bundle, on, job.threads)
    sets = find_sets(on).similarity

    def of_words(bundle: Bundle) -> dict[str, float]:
        embedding = embedding_of(bundle)
        found = {asked.name: evaluate_similarity(embedding, asked).facts()["spearman"] for asked in sets}
        return {name: score for name, score in found.items() if score is not None}

    return of_words


def _of_labels(bundle: Bundle, on: StrPath, threads: int) -> dict[str, float]:
    facts = evaluate(bundle, on, threads=threads).facts()
    return {name: facts[name] for name in ("accuracy", "macro_f1")}
