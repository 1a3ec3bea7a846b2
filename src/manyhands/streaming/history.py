"""How learning from a stream goes: losses and speed over time, in a list that never grows too long."""

import math
from dataclasses import dataclass, field
from typing import Any

from manyhands.models.learner import Loss

MOST_POINTS = 512
MOST_DRIFTS = 32
FORGETTING = 0.01  # of the loss that is expected, with every block
WARM_UP_BLOCKS = 50
SLACK, ALARM = 0.5, 20.0  # in standard deviations
LEAST_SPREAD = 1e-3  # of the expected loss: a stream that repeats itself has hardly any


@dataclass
class Drift:
    """Tells when the loss rises above what it was: CUSUM, one-sided, of the mean loss of each block.

    The expected loss and its spread are means that forget, by a hundredth with every block. How many
    standard deviations a block lies above the expected loss, less half of one, is summed up, never below 0.
    A sum of more than 20 is a drift: forty blocks that are one deviation too high, or one that is twenty.
    After that, what is expected is found anew.

    >>> drift = Drift()
    >>> [drift.add(1.0 + 0.1 * (k % 2)) for k in range(100)].count(True)
    0
    >>> [drift.add(1.5) for _ in range(10)].index(True)
    2
    """

    blocks: int = 0
    mean: float = 0.0
    variance: float = 0.0
    total: float = 0.0

    def add(self, loss: float) -> bool:
        """Whether the loss of this block shows a drift."""
        self.blocks += 1
        share = max(1 / self.blocks, FORGETTING)
        away = loss - self.mean
        spread = max(math.sqrt(self.variance), LEAST_SPREAD * abs(self.mean), 1e-12)
        if self.blocks > WARM_UP_BLOCKS:
            self.total = max(0.0, self.total + away / spread - SLACK)
        self.mean += share * away
        self.variance += share * (away * (loss - self.mean) - self.variance)
        if self.total <= ALARM:
            return False
        self.blocks, self.mean, self.variance, self.total = 0, 0.0, 0.0, 0.0
        return True


@dataclass
class History:
    """Points of a curve, each over the messages since the one before. When there are many, pairs become one.

    >>> history = History()
    >>> for _ in range(MOST_POINTS + 1):
    ...     history.add(messages=10, words=100, seconds=1.0, loss=Loss(5.0, 10.0))
    >>> len(history.points), history.points[0]
    (257, {'messages': 20, 'words': 200, 'seconds': 2.0, 'loss_total': 10.0, 'loss_rows': 20.0})
    """

    points: list[dict[str, Any]] = field(default_factory=list)

    def add(self, *, messages: int, words: int, seconds: float, loss: Loss) -> None:
        point = {"messages": messages, "words": words, "seconds": seconds}
        self.points.append({**point, "loss_total": loss.total, "loss_rows": loss.rows})
        if len(self.points) > MOST_POINTS:
            pairs = zip(self.points[:-1:2], self.points[1::2], strict=True)
            self.points = [{name: one[name] + two[name] for name in one} for one, two in pairs] + self.points[
                -1:
            ]

    def curve(self) -> list[dict[str, float]]:
        """As a record keeps it: after how many messages, the loss and the speed since the point before."""
        out, messages = [], 0
        for point in self.points:
            messages += point["messages"]
            seconds = max(point["seconds"], 1e-9)
            out.append(
                {
                    "messages": messages,
                    "loss": point["loss_total"] / point["loss_rows"] if point["loss_rows"] else 0.0,
                    "messages_per_second": round(point["messages"] / seconds, 1),
                    "words_per_second": round(point["words"] / seconds, 1),
                }
            )
        return out
