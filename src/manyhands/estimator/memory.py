"""What the optimizer of a training remembers, so that ``partial_fit`` goes on where the last call ended."""

from manyhands.models.learner import Learner
from manyhands.models.model import Arrays
from manyhands.training.exchange import Alone
from manyhands.training.state import State


class Remembering(Alone):
    """One process that begins with an optimizer's memory, ``before``, and keeps it for the next call."""

    def __init__(self, before: Arrays) -> None:
        super().__init__()
        self._before = before

    def start(self, learner: Learner, state: State) -> None:
        self._learner = learner
        for name, remembered in _memory_of(learner).items():
            known = self._before.get(name)
            # Features, words and labels that were known keep their places; new ones come behind. An
            # optimizer of another kind remembers something else.
            if (
                known is not None
                and known.shape[1:] == remembered.shape[1:]
                and len(known) <= len(remembered)
            ):
                remembered[: len(known)] = known

    def memory(self) -> Arrays:
        """What the optimizer remembers at the end, as a copy."""
        return {name: array.copy() for name, array in _memory_of(self._learner).items()}


def _memory_of(learner: Learner) -> Arrays:
    """AdaGrad's sums of squares, and whatever else an optimizer remembers: as it is and not a copy."""
    found = {}
    for name, part in learner.state().items():
        if part.memory:
            found[name] = part.array
        elif part.squares is not None:
            found[name] = part.array[:, part.squares]
    return found
