"""``audit``: rows whose labels look wrong, by models that have not seen them, and why.

The rows are judged in rounds. In the first, wrong labels are learnt like right ones and blur the models; so
the rows that look wrong then are left out of the training in the next, which has other folds. A row's
probability is the mean over all rounds: models that were trained on different rows, and read the texts in
different ways, err less together.
"""

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from manyhands.auditing.folds import Fold, folds_by_text, out_of_fold
from manyhands.auditing.ranking import Probabilities, confidently_wrong, rank
from manyhands.auditing.reasons import reasons
from manyhands.auditing.rows import AuditedRows, open_rows
from manyhands.auditing.suspects import Suspect, Suspects
from manyhands.errors import UsageError
from manyhands.machine import refuse_if_too_large, resources_for
from manyhands.models.model import EXPLAIN, Contribution
from manyhands.records import Progress, Resources, Silent
from manyhands.settings import CharNgramSettings
from manyhands.storage.files import StrPath
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.job import Job, job_for
from manyhands.training.objective import objective_of

MOST_FOLDS = 100
LETTERS = "3-5"  # lengths of the character n-grams that the first round reads
LETTER_TOKENS = 2 << 20  # of more words, letters would cost more time than all else


@dataclass(frozen=True)
class Audit:
    """What was found: the most suspicious rows with reasons, and all of them without."""

    names: tuple[str, ...]
    model: str
    folds: int
    rows: int
    unjudged: int  # all rows of their label stand in one fold, so that no model knows the label
    left_out: int  # rows of raw files without a usable text or label
    estimated_wrong: int
    suspects: list[Suspect]  # the most suspicious first
    suspicious: Suspects  # all of them, in the same order
    seconds: float

    def facts(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "data": list(self.names),
            "model": self.model,
            "folds": self.folds,
            "rows": self.rows,
            "unjudged": self.unjudged,
            "left_out": self.left_out,
            "suspicious": len(self.suspicious),
            "estimated_wrong": self.estimated_wrong,
            "seconds": round(self.seconds, 3),
            "suspects": [asdict(suspect) for suspect in self.suspects],
        }

    def summary(self) -> str:
        """A sentence for people."""
        return (
            f"{len(self.suspicious):,} of {self.rows:,} rows look more like another label; by estimate, "
            f"{self.estimated_wrong:,} labels are wrong or doubtful ({self.seconds:.1f} s)"
        )

    def confusions(self) -> Counter[tuple[str, str]]:
        """How many suspicious rows have which label, and which one looks right."""
        ranked, names = self.suspicious.ranked, self.suspicious.names
        pairs = zip(ranked.labels.tolist(), ranked.suggested.tolist(), strict=True)
        return Counter((names[label], names[suggested]) for label, suggested in pairs)


def audit(
    data: StrPath | Sequence[StrPath],
    *,
    model: str = "ngrams",
    top: int = 50,
    folds: int = 5,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Audit:
    """List the rows of a prepared dataset, or of raw files, whose labels look wrong.

    ``settings`` are those of the model, of training and of how raw files are read. The ``top`` most
    suspicious rows come with the n-grams that speak against their labels. The same seed gives the same list,
    on any number of threads.
    """
    began = time.monotonic()
    if top < 1:
        raise UsageError(f"--top must be 1 or more, not {top}")
    if not 2 <= folds <= MOST_FOLDS:
        raise UsageError(f"--folds must be from 2 to {MOST_FOLDS}, not {folds}")
    if not objective_of(model).labelled:
        raise UsageError(f"{model} learns no labels; audit by a classifier")
    names = tuple(os.fspath(name) for name in ([data] if isinstance(data, str | os.PathLike) else data))
    resources, watcher = resources_for(memory, threads), progress or Silent()
    job = job_for(model, settings, resources)
    rows = open_rows(names, job.reading, resources, watcher)
    examples = rows.examples
    jobs = _two_rounds(job, examples)
    refuse_if_too_large(2 * 4 * len(examples) * len(examples.labels.names), resources)
    judging = _Judging(rows, top)
    judging.run(jobs, folds, resources, watcher)
    likely, labels, judged = judging.probabilities, judging.labels, judging.judged
    suspicious = Suspects(rows, rank(likely, labels, judged))
    return Audit(
        names=names,
        model=model,
        folds=folds,
        rows=len(examples),
        unjudged=int(np.count_nonzero(~judged)),
        left_out=examples.left_out,
        estimated_wrong=int(np.count_nonzero(confidently_wrong(likely, labels) & judged)),
        suspects=list(suspicious.listed(judging.why, top)),
        suspicious=suspicious,
        seconds=time.monotonic() - began,
    )


def _two_rounds(job: Job, examples: LabelledRows) -> list[Job]:
    """What each round trains.

    Where the user left open whether letters are read, the first round reads them, unless there are many
    words. The second does not: reasons are taken from it, and words are what people can judge.
    """
    given = job.settings.model_dump(exclude_unset=True)
    left_open = isinstance(job.settings, CharNgramSettings) and "char_ngrams" not in given
    if not left_open or examples.corpus.tokens > LETTER_TOKENS:
        return [job, job]
    return [replace(job, settings=type(job.settings).create(**given, char_ngrams=LETTERS)), job]


class _Judging:
    """What the rounds say of the rows, added up."""

    def __init__(self, rows: AuditedRows, top: int) -> None:
        examples = rows.examples
        self._rows, self._top = rows, top
        self.labels = examples.labels.ids.astype(np.int64)
        self.judged = np.ones(len(examples), np.bool_)
        self.why: dict[int, list[Contribution]] = {}
        self._sums = np.zeros((len(examples), len(examples.labels.names)), np.float32)
        self._rounds = 0

    @property
    def probabilities(self) -> Probabilities:
        return self._sums / np.float32(max(self._rounds, 1))

    def run(self, jobs: list[Job], folds: int, resources: Resources, progress: Progress) -> None:
        examples = self._rows.examples
        trusted = np.ones(len(examples), np.bool_)
        for job in jobs:
            fold_of = folds_by_text(examples, folds, job.settings.seed + self._rounds)
            self._rounds += 1
            for fold in out_of_fold(job, examples, fold_of, trusted, resources, progress):
                self._add(fold)
                if self._rounds == len(jobs) and EXPLAIN in fold.model.can:
                    self._explain(fold)
            trusted = ~confidently_wrong(self.probabilities, self.labels)

    def _add(self, fold: Fold) -> None:
        self._sums[fold.rows] += fold.probabilities
        self.judged[fold.rows] &= fold.known[self.labels[fold.rows]]

    def _explain(self, fold: Fold) -> None:
        """Ask for the reasons of a fold's most suspicious rows now: its model is not kept."""
        rows = fold.rows
        likely = self._sums[rows] / np.float32(self._rounds)
        ranked = rank(likely, self.labels[rows], self.judged[rows])
        for place in ranked.rows[: self._top].tolist():
            row = int(rows[place])
            suggested = int(likely[place].argmax())
            corpus = self._rows.examples.corpus
            self.why[row] = reasons(fold.model, corpus, row, int(self.labels[row]), suggested)
