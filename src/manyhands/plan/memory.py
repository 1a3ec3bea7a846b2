"""Whether the machines of a cluster can hold a training: what its learner keeps, as often as it is held."""

from manyhands.plan.cluster import Cluster, Group
from manyhands.plan.costs import CPU
from manyhands.plan.work import Pattern, Work

GIB = float(1 << 30)
FOR_TRAINING = 0.5  # of a machine's memory, what `train` takes unless it is told otherwise


def gib_needed(work: Work, group: Group, machines: int) -> float:
    """Of each machine of a group, in a cluster of so many machines; of each device, where devices compute.

    Rows and features are not in it: what has no room is read or made again.
    """
    if group.device != CPU:
        return work.state_bytes / GIB
    shares = machines == 1 and work.pattern is Pattern.RING  # there is nobody to merge with
    own = 1 if work.in_place else group.workers
    return ((1 if shares else work.copies) - 1 + own) * work.state_bytes / GIB


def gib_allowed(group: Group) -> float:
    """For one training; where nothing is known of it, as much as it may need."""
    if group.device != CPU:
        return group.instance.device_memory_gib or float("inf")
    return FOR_TRAINING * group.instance.memory_gib or float("inf")


def too_small(work: Work, cluster: Cluster) -> Group | None:
    """The first group whose machines cannot hold the training."""
    for group in cluster.groups:
        if gib_needed(work, group, cluster.machines) > gib_allowed(group):
            return group
    return None


def why_too_small(work: Work, cluster: Cluster) -> str:
    """A sentence for people; empty where the cluster can hold it."""
    group = too_small(work, cluster)
    if group is None:
        return ""
    needed, where = gib_needed(work, group, cluster.machines), group.instance.name
    what = "GPU" if group.device != CPU else "machine"
    return (
        f"{cluster} cannot hold it: it takes about {needed:.1f} GB of every {what}, and of a {where} "
        f"it may have {gib_allowed(group):.1f}"
    )
