"""From what a model says to probabilities that can be trusted: what held-out rows have taught, in numbers.

``evaluation/calibration.py`` finds these numbers. None of them changes which label is the likeliest of a row.
"""

from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from manyhands.kernels.compile import kernel
from manyhands.models.model import Scorer, Scores
from manyhands.text.corpus import Corpus
from manyhands.text.ragged import Ragged

Doubles = npt.NDArray[np.float64]

MOST_POINTS = 10_000  # of a curve that comes from outside
HALF, BELOW_HALF = np.float32(0.5), np.nextafter(np.float32(0.5), np.float32(0))
LEAST = np.finfo(np.float32).tiny

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Temperature(_Frozen):
    """Scores divided by a number before they become probabilities: above 1, the model was too sure.

    ``softmax`` probabilities of a row add up to 1, and there is one number. Those by ``sigmoid`` are each of
    its own, and there may be a number for each label.
    """

    kind: Literal["temperature"] = "temperature"
    link: Literal["softmax", "sigmoid"]
    temperatures: Annotated[list[Positive], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_of_softmax(self) -> Self:
        if self.link == "softmax" and len(self.temperatures) != 1:
            raise ValueError("softmax has one temperature")
        return self

    def fits(self, labels: int) -> bool:
        return len(self.temperatures) in (1, labels)

    def apply(self, scores: Scores) -> Scores:
        """The probabilities of rows by labels, set right.

        Odds of 4 to 1 become their square root, 2 to 1.

        >>> halved = Temperature(link="softmax", temperatures=[2.0])
        >>> halved.apply(np.array([[0.8, 0.2]], np.float32)).round(4).tolist()
        [[0.666700005531311, 0.33329999446868896]]
        """
        out = np.empty_like(scores)
        inverse = np.ascontiguousarray(np.broadcast_to(1 / np.array(self.temperatures), scores.shape[1]))
        if self.link == "softmax":
            _soften_shares(np.ascontiguousarray(scores), inverse, out)
        else:
            _soften_odds(np.ascontiguousarray(scores), inverse, len(self.temperatures) == 1, out)
        return out

    def inverse(self, labels: int) -> Scores:
        """By what the scores of each label are multiplied before they become probabilities."""
        return np.broadcast_to(1 / np.array(self.temperatures), labels).astype(np.float32)


class Isotonic(_Frozen):
    """After a temperature, how often the likeliest label is right: a rising curve of straight pieces.

    The other labels of the row share what is left as they did before. Where that would put another label in
    front, the likeliest keeps just enough to stay there. The curve rises everywhere: rows keep their order.
    """

    kind: Literal["isotonic"] = "isotonic"
    said: Annotated[list[Share], Field(min_length=2, max_length=MOST_POINTS)]
    right: Annotated[list[Share], Field(min_length=2, max_length=MOST_POINTS)]
    first: Temperature  # all there is, where only scores can be scaled

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if len(self.said) != len(self.right):
            raise ValueError("a curve needs as many places as values")
        if (np.diff(self.said) <= 0).any() or (np.diff(self.right) <= 0).any():
            raise ValueError("a curve has to rise")
        return self

    def fits(self, labels: int) -> bool:
        return labels > 1 and self.first.fits(labels)

    def apply(self, scores: Scores) -> Scores:
        """The probabilities of rows by labels, set right.

        Here 0.8 is halfway between what was right in 40 % and in 80 % of the cases.

        >>> good = Temperature(link="softmax", temperatures=[1.0])
        >>> curve = Isotonic(said=[0.0, 0.7, 0.9, 1.0], right=[0.0, 0.4, 0.8, 0.9], first=good)
        >>> curve.apply(np.array([[0.8, 0.15, 0.05]], np.float32)).round(4).tolist()
        [[0.6000000238418579, 0.30000001192092896, 0.10000000149011612]]
        """
        scores = self.first.apply(scores)
        out = np.empty_like(scores)
        right = np.interp(scores.max(axis=1), self.said, self.right)
        _give_to_best(scores, right, out)
        return out

    def inverse(self, labels: int) -> Scores:
        """As of ``first``."""
        return self.first.inverse(labels)


Calibration = Annotated[Temperature | Isotonic, Field(discriminator="kind")]


class CalibratedScorer:
    """A classifier whose probabilities are set right."""

    def __init__(self, model: Scorer, calibration: Temperature | Isotonic) -> None:
        self._model, self._calibration = model, calibration

    @property
    def labels(self) -> list[str]:
        return self._model.labels

    @property
    def multi_label(self) -> bool:
        return self._model.multi_label

    @property
    def reads_numbers(self) -> bool:
        return self._model.reads_numbers

    def read(self, normal: Ragged) -> Corpus:
        return self._model.read(normal)

    def scores(self, corpus: Corpus, threads: int = 1) -> Scores:
        return self._calibration.apply(self._model.scores(corpus, threads))

    def score_texts(self, normal: Ragged) -> Scores:
        return self._calibration.apply(self._model.score_texts(normal))


@kernel
def _soften_shares(scores: Scores, inverse: Doubles, out: Scores) -> None:
    labels = scores.shape[1]
    for row in range(len(scores)):
        best = _best(scores[row])
        most, total = max(np.float64(scores[row, best]), LEAST), 1.0
        for k in range(labels):
            if k != best:
                out[row, k] = np.exp(np.log(scores[row, k] / most) * inverse[k])
                total += out[row, k]
        for k in range(labels):
            out[row, k] = (out[row, k] if k != best else np.float32(1)) / total
        _keep_best(out[row], best)


@kernel
def _soften_odds(scores: Scores, inverse: Doubles, same: bool, out: Scores) -> None:
    for row in range(len(scores)):
        for k in range(scores.shape[1]):
            likely = min(np.float64(scores[row, k]), 1.0)  # single precision may end a hair above
            odds = np.log(likely) - np.log1p(-likely)
            out[row, k] = 1 / (1 + np.exp(-odds * inverse[k]))
            if scores[row, k] < HALF:  # rounding must not make it a yes
                out[row, k] = min(out[row, k], BELOW_HALF)
        if same:
            _keep_best(out[row], _best(scores[row]))


@kernel
def _give_to_best(scores: Scores, right: Doubles, out: Scores) -> None:
    labels = scores.shape[1]
    for row in range(len(scores)):
        best = _best(scores[row])
        rest, second = 0.0, 0.0
        for k in range(labels):
            if k != best:
                rest += scores[row, k]
                second = max(second, np.float64(scores[row, k]))
        # The second gets second / rest of what the best leaves: at most as much as the best has.
        least = second / (rest + second) if rest > 0 else 1.0 / labels
        likely = max(right[row], least)
        for k in range(labels):
            part = scores[row, k] / rest if rest > 0 else 1.0 / (labels - 1)
            out[row, k] = likely if k == best else (1 - likely) * part
        _keep_best(out[row], best)


@kernel
def _best(scores: Scores) -> int:
    """The first of the likeliest, as everywhere."""
    best = 0
    for k in range(1, len(scores)):
        if scores[k] > scores[best]:
            best = k
    return best


@kernel
def _keep_best(out: Scores, best: int) -> None:
    """Numbers that differed by a hair may have become equal, and of equal ones the first would win."""
    out[best] = max(out[best], np.float32(LEAST))
    for k in range(len(out)):
        if k < best and out[k] >= out[best]:
            out[k] = np.nextafter(out[best], np.float32(0))
        elif out[k] > out[best]:
            out[k] = out[best]
