"""What is said of a row whose likeliest label is not likely enough."""

from manyhands.errors import UsageError

UNSURE = "unsure"


def check_unsure(least: float | None, labels: list[str]) -> None:
    """``--unsure``: the probability below which a row has no answer."""
    if least is None:
        return
    if not 0 <= least <= 1:
        raise UsageError(f"--unsure must be a probability from 0 to 1, not {least:g}")
    if UNSURE in labels:
        raise UsageError(f"--unsure would say '{UNSURE}', which is a label of this model; take --at instead")
