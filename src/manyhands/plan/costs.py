"""What things cost: the numbers of the cluster model, and how sure each is before anything is measured.

All are positive, and known up to a factor: each has a middle and the standard deviation of its logarithm.
"""

from dataclasses import dataclass

CPU = "cpu"
Costs = dict[str, float]


@dataclass(frozen=True)
class Prior:
    middle: float
    deviation: float  # of the logarithm: 0.7 is a factor of two


# A share of a step is written as odds: 4 is four fifths.
PRIORS = {
    "row": Prior(1e-3, 6.0),  # seconds; that is, anything
    "fixed": Prior(0.05, 1.0),  # odds of what a step takes whatever its rows are, at the reference batch
    "core": Prior(1.0, 0.2),  # how slow a machine's processors are beside those that were measured
    "threads": Prior(0.85, 0.3),  # n threads do the work of n to this power
    "link": Prior(0.8, 0.4),  # of a link's nominal speed, what an exchange gets
    "bus": Prior(3e9, 1.0),  # bytes/s between the devices of a machine
    "latency": Prior(50e-6, 0.7),
    "jitter": Prior(0.05, 0.7),  # how much the steps of equal workers differ
    "start": Prior(1.0, 1.0),  # seconds, of one process
    "engine": Prior(5.0, 1.0),  # seconds, of the processes of a crew
    "serial": Prior(0.5, 1.0),  # odds of what one thread does alone, of reading and counting the rows
    "store": Prior(150e6, 0.7),  # bytes/s that a machine reads from an object store or a file server
    "turn": Prior(1e-4, 2.0),  # of an exchange, beside the link
}
# A GPU starts a kernel for every word and layer of a recurrent model, which takes as long for few rows as for
# many.
FIXED_RECURRENT = Prior(4.0, 1.0)
# Machines differ in how much of their nominal speed an exchange gets.
OWN_LINK = Prior(1.0, 0.3)
# One stream of bytes gets no more than this between machines that were not placed side by side.
ONE_STREAM_GBPS = 5.0
UNKNOWN_LINK = Prior(10**0.5, 0.9)  # Gbit/s: four of five are from 1 to 10


def prior_of(name: str, *, recurrent: bool) -> Prior:
    """What is known of a cost before anything is measured."""
    kind, _, of = name.partition(":")
    if kind == "link" and of:
        return OWN_LINK
    if kind == "fixed" and recurrent and of != CPU:
        return FIXED_RECURRENT
    return PRIORS[kind]
