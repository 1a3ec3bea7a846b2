"""Unlabelled texts beside labelled rows: a teacher labels them, and the model learns from all.

The teacher is the model itself, learnt from the labelled rows, together with a second view of the
texts: vectors that were learnt from all of them (``models.ngram.context``). How much to trust either
is learnt from rows held out. What the teacher says of an unlabelled text is a probability for each
label, and that is what is learnt from it. Held-out rows then decide whether it helped; where it did
not, the unlabelled texts are left alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from manyhands.data.dataset import is_dataset, open_dataset
from manyhands.data.labelled_rows import read_rows, rows_of_split
from manyhands.errors import InputError, UsageError
from manyhands.kernels.simd import Floats
from manyhands.models.model import Classifier
from manyhands.models.ngram.context import ContextSettings, ContextVectors, learn_context
from manyhands.records import Progress, Silent
from manyhands.settings import PrepareSettings, TextSettings
from manyhands.text.corpus import Corpus
from manyhands.text.labelled_rows import LabelledRows, Labels
from manyhands.training.choose import with_choice
from manyhands.training.exchange import Alone
from manyhands.training.job import Job
from manyhands.training.learn import learn
from manyhands.training.objective import objective_of
from manyhands.training.splits import Splits

HELD_OUT_SHARE, MOST_HELD_OUT = 0.2, 5000
LEAST_LABELLED = 100  # with fewer, held-out rows tell nothing
MOST_LABELS = 1000
STRENGTHS = (0.1, 1.0, 10.0)  # of the regression over vectors, as scikit-learn's C
MOST_STEPS = 300
LEAST_PROBABILITY = 1e-6

Probabilities = npt.NDArray[np.float64]


class WithUnlabelled(NamedTuple):
    """The job and the rows to learn, and what was done, as the record keeps it."""

    job: Job
    splits: Splits
    record: dict[str, Any]


def check_unlabelled(job: Job) -> None:
    """Refuse what cannot use unlabelled texts, before anything is read."""
    if not objective_of(job.model).labelled:
        raise UsageError(
            f"--unlabelled is for classifiers; {job.model} learns from any text: give it as data"
        )
    if job.previous is not None:
        raise UsageError(
            "--unlabelled begins anew: leave out --continue-from, and train on all labelled rows"
        )
    if job.spread != "single":
        raise UsageError(f"--unlabelled needs --spread single: {job.spread} workers cannot open what it adds")
    loss = getattr(job.settings, "loss", "softmax")
    if loss not in ("auto", "softmax"):
        raise UsageError(f"--unlabelled needs --loss softmax, which learns probabilities, not {loss}")


def with_unlabelled(names: tuple[str, ...], job: Job, splits: Splits, progress: Progress) -> WithUnlabelled:
    """Read unlabelled texts, and add them to the rows to learn if held-out rows say that it helps.

    Where they do not, the job is what it would be without them.
    """
    _check_rows(splits.train)
    unlabelled = _read(names, splits.text, job, progress)
    fit, held = _hold_out(splits, job.settings.seed)
    plain = with_choice(job, splits.train, progress)
    record = {"from": list(names), "rows": len(unlabelled), "held_out_rows": len(held), "used": False}
    if len(fit) < LEAST_LABELLED:
        progress.say(
            f"unlabelled texts are not used: fewer than {LEAST_LABELLED} labelled rows cannot tell "
            "whether they help"
        )
        return WithUnlabelled(plain, splits, record)
    progress.say("learning from labelled rows alone, for comparison")
    alone = _learn(plain, fit)
    job = with_choice(_with_probabilities(job), splits.train, progress)
    vectors = _context(job, fit, unlabelled, progress)
    teacher = _teach(_learn(job, fit), vectors, fit, held, job)
    taught = _learn(job, fit.joined(_labelled_by(teacher, unlabelled)))
    before, after = (
        _scores(model.scores(held.corpus, job.resources.threads), held) for model in (alone, taught)
    )
    record |= {
        "trust": {"model": teacher.trust[0], "vectors": teacher.trust[1]},
        "held_out": {"without": before, "teacher": _scores(teacher.tell(held.corpus), held), "with": after},
    }
    if after["accuracy"] <= before["accuracy"]:
        progress.say(
            f"unlabelled texts are not used: held-out accuracy {after['accuracy']:.4f} with them, "
            f"{before['accuracy']:.4f} without"
        )
        return WithUnlabelled(plain, splits, record)
    progress.say(
        f"{len(unlabelled):,} unlabelled texts are used: held-out accuracy {after['accuracy']:.4f} "
        f"with them, {before['accuracy']:.4f} without"
    )
    if splits.valid is None:  # what was held out is learnt from as well, now that all is decided
        teacher = teacher.again(_learn(job, splits.train), splits.train)
    rows = splits.train.joined(_labelled_by(teacher, unlabelled))
    return WithUnlabelled(job, replace(splits, train=rows), {**record, "used": True})


def _with_probabilities(job: Job) -> Job:
    """With the loss that learns probabilities, where the model has several."""
    if not hasattr(job.settings, "loss"):
        return job
    return replace(job, settings=job.settings.model_copy(update={"loss": "softmax"}))


def _check_rows(rows: LabelledRows) -> None:
    if rows.corpus.values is not None:
        raise UsageError("--unlabelled is for texts, and these rows are numbers")
    if rows.labels.multi_label:
        raise UsageError("--unlabelled is for rows of one label each, and some of these have several")
    if len(rows.labels.names) > MOST_LABELS:
        raise UsageError(
            f"--unlabelled is for at most {MOST_LABELS:,} labels, not {len(rows.labels.names):,}"
        )


def _read(names: tuple[str, ...], text: TextSettings, job: Job, progress: Progress) -> LabelledRows:
    """Texts only, normalised as the labelled ones are; labels that they may have are not looked at."""
    if is_dataset(list(names)):
        dataset = open_dataset(names[0])
        if dataset.manifest.settings.text != text:
            raise InputError(
                f"{names[0]} was prepared with other text settings than the rows to train on; "
                "prepare it with the same, or pass the raw files"
            )
        return rows_of_split(dataset, "train", labelled=False)
    settings = PrepareSettings.create(text=text)
    return read_rows(list(names), settings, job.resources, progress, labelled=False).examples


def _hold_out(splits: Splits, seed: int) -> tuple[LabelledRows, LabelledRows]:
    """Rows to learn from, and rows to decide by: the validation rows, or else some of those to train on."""
    if splits.valid is not None:
        return splits.train, splits.valid
    rows = len(splits.train)
    held = min(int(rows * HELD_OUT_SHARE), MOST_HELD_OUT)
    order = np.random.default_rng(seed).permutation(rows)
    return splits.train.take(np.sort(order[held:])), splits.train.take(np.sort(order[:held]))


def _alone(job: Job) -> Job:
    """The same training without what belongs to the run as a whole."""
    training = job.training.model_copy(update={"price": None, "budget": None})
    return replace(job, checkpoint=None, resume=False, run=None, call=None, training=training)


def _learn(job: Job, rows: LabelledRows) -> Classifier:
    model: Any = learn(_alone(job), rows, None, Alone(), Silent()).model
    return model  # type: ignore[no-any-return]


def _context(job: Job, fit: LabelledRows, unlabelled: LabelledRows, progress: Progress) -> ContextVectors:
    return learn_context(
        fit,
        fit.joined(unlabelled),
        ContextSettings(seed=job.settings.seed),
        job.resources,
        progress,
        Alone(),
        deterministic=job.training.deterministic,
    )


@dataclass(frozen=True)
class _Regression:
    """Probabilities of the labels by the vectors of texts."""

    weights: npt.NDArray[np.float64]
    bias: npt.NDArray[np.float64]

    def tell(self, vectors: Floats) -> Probabilities:
        return _softmax(vectors @ self.weights + self.bias)


@dataclass(frozen=True)
class _Teacher:
    """Two views of a text, and how much each is trusted."""

    model: Classifier
    vectors: ContextVectors
    regression: _Regression
    strength: float
    trust: tuple[float, float]
    threads: int

    def tell(self, corpus: Corpus) -> Probabilities:
        by_model = self.model.scores(corpus, self.threads)
        by_vectors = self.regression.tell(self.vectors.of(corpus, self.threads))
        return _together((by_model, by_vectors), self.trust)

    def again(self, model: Classifier, rows: LabelledRows) -> "_Teacher":
        """With a model of more rows, and a regression over them."""
        regression = _regress(self.vectors.of(rows.corpus, self.threads), rows, self.strength)
        return replace(self, model=model, regression=regression)


def _teach(
    model: Classifier, vectors: ContextVectors, fit: LabelledRows, held: LabelledRows, job: Job
) -> _Teacher:
    """Learn both views from ``fit``; how strong the regression and how much to trust each, from ``held``."""
    threads = job.resources.threads
    of_fit, of_held = (vectors.of(rows.corpus, threads) for rows in (fit, held))
    tried = [(_regress(of_fit, fit, strength), strength) for strength in STRENGTHS]
    regression, strength = min(tried, key=lambda one: _log_loss(one[0].tell(of_held), held))
    views = model.scores(held.corpus, threads), regression.tell(of_held)
    found = minimize(lambda trust: _log_loss(_together(views, trust), held), (1.0, 1.0), method="Nelder-Mead")
    return _Teacher(model, vectors, regression, strength, tuple(found.x.tolist()), threads)


def _regress(vectors: Floats, rows: LabelledRows, strength: float) -> _Regression:
    """A logistic regression; labels that no row has stay next to impossible."""
    size = max(float(vectors.std()), LEAST_PROBABILITY)
    made = LogisticRegression(C=strength, max_iter=MOST_STEPS).fit(
        vectors / size, rows.labels.ids, rows.weights
    )
    labels = len(rows.labels.names)
    weights, bias = np.zeros((vectors.shape[1], labels)), np.full(labels, np.log(LEAST_PROBABILITY))
    if len(made.classes_) == 2:  # one column for two classes
        weights[:, made.classes_] = np.hstack([-made.coef_.T, made.coef_.T]) / 2 / size
        bias[made.classes_] = np.append(-made.intercept_, made.intercept_) / 2
    else:
        weights[:, made.classes_], bias[made.classes_] = made.coef_.T / size, made.intercept_
    return _Regression(weights, bias)


def _softmax(scores: Probabilities) -> Probabilities:
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(likely / likely.sum(axis=1, keepdims=True))


def _together(views: Sequence[npt.NDArray[Any]], trust: Sequence[float]) -> Probabilities:
    """The product of the views, each to the power of the trust in it."""
    total = np.zeros(views[0].shape)
    for view, weight in zip(views, trust, strict=True):
        total += weight * np.log(np.maximum(view.astype(np.float64), LEAST_PROBABILITY))
    return _softmax(total)


def _labelled_by(teacher: _Teacher, unlabelled: LabelledRows) -> LabelledRows:
    labels = Labels.shared(teacher.tell(unlabelled.corpus), teacher.model.labels)
    return replace(unlabelled, labels=labels, weights=np.ones(len(unlabelled), np.float32))


def _log_loss(likely: Probabilities, rows: LabelledRows) -> float:
    right = likely[np.arange(len(rows)), rows.labels.ids]
    return float(-np.log(np.maximum(right, LEAST_PROBABILITY)).mean())


def _scores(likely: npt.NDArray[Any], rows: LabelledRows) -> dict[str, float]:
    right = float((likely.argmax(axis=1) == rows.labels.ids).mean())
    return {"accuracy": round(right, 6), "log_loss": round(_log_loss(likely, rows), 6)}
