"""What a training has to do, whoever does it: rows to learn, and what workers have to tell each other."""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Storage(Enum):
    """Where machines read the rows from before they begin."""

    LOCAL = "their own disks, where the rows are already"
    S3 = "an object store, which gives every machine as much as any other"
    NFS = "one file server, which they share"


class Pattern(Enum):
    """Who speaks with whom when workers exchange what they have learnt."""

    RING = "all-reduce: everyone passes parts of the sum on to the next"
    STAR = "everyone sends all to one machine, and gets all back"
    SHARDS = "a parameter server: everyone tells each shard what it moved, and hears what others did"
    MEANS = "a driver sends the weights to all, they merge what all moved, each a part, and send it back"


@dataclass(frozen=True)
class Work:
    """A training. ``rows`` may be rows, words or pairs, as long as seconds count the same.

    ``batch`` is what a worker learns between two exchanges; if ``shared``, what all of them learn together.
    """

    rows: float  # of an epoch
    epochs: float
    batch: float
    exchange_bytes: float  # what a worker has to say in an exchange, and to hear from shards
    exchange_rows: float = 0  # after it has learnt so many rows; 0: however many
    moves_grow: float = 0.6  # the power of the rows by which what they move grows
    weights_bytes: float = 0  # all that is learnt, where that is sent to everyone
    state_bytes: float = 0  # that a learner keeps in memory; nobody moves more
    copies: int = 1  # of that, on one of several machines
    end_bytes: float = 0  # what a driver takes over from all machines at the end
    shards: float = 1  # processes that hold the weights, on different machines as far as possible
    most_stretch: float = 1  # exchanges may be so many times further apart, until they take half of the time
    shared: bool = False
    turns_of_worker: float = 0  # an epoch has so many turns for each worker, whatever the batch; one if alone
    most_turns: float = 1  # of such an epoch
    pattern: Pattern = Pattern.RING
    waits: bool = True  # for the slowest in every exchange; a server that is asynchronous does not
    balanced: bool = False  # rows are given by speed
    recurrent: bool = False  # of a step on a GPU, most is the start of many small kernels
    in_memory: bool = False  # workers of a machine have the same memory, and one speaks for all
    in_place: bool = False  # and learn in it, so that they have nothing to tell each other
    remakes: bool = False  # what comes before learning is done again in every turn, for its rows
    passes_before: float = 0  # reading and counting the rows takes as long as learning them so many times
    storage: Storage = Storage.LOCAL
    data_bytes: float = 0  # that are read from there; each machine reads its share
    validation: float = 0  # seconds of one thread, after every epoch
    engine: bool = False  # processes have to be started on other machines, or by another program
    loop_only: bool = False  # seconds are those of the training loop, without what comes before and after
    most_machines: int = 1 << 30  # more of them would not learn: the rows are too few


@dataclass(frozen=True)
class Parts:
    """Where the seconds of a training go, on each of some clusters."""

    start: Floats
    load: Floats
    compute: Floats
    wait: Floats
    exchange: Floats

    @property
    def seconds(self) -> Floats:
        return self.start + self.load + self.compute + self.wait + self.exchange
