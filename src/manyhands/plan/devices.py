"""What is known of GPUs that train recurrent text models: what such models were measured to take on them.

Peak FLOPS are several times off for these models, which start a small kernel for every word and layer.
"""

from dataclasses import dataclass

from manyhands.plan.costs import Prior

MEASURED = 0.35  # how far another model or a newer library may be off (the deviation of the logarithm)
NEVER_MEASURED = 0.9  # four of five are within a factor of three


@dataclass(frozen=True)
class Recurrence:
    """The size of a recurrent model: what a step of ``rows`` texts has to do on a device."""

    words: float  # of a text
    layers: int
    flops: float  # of a text, forwards and backwards

    @classmethod
    def of(cls, words: float, dim: int, widths: tuple[int, ...]) -> "Recurrence":
        """An LSTM: four gates of a layer read what is below it and its own last state.

        >>> Recurrence.of(100, 100, (32, 32)).flops
        15052800
        """
        below = (dim, *widths[:-1])
        products = sum(4 * width * (under + width) for width, under in zip(widths, below, strict=True))
        return cls(words, len(widths), 3 * 2 * words * products)


@dataclass(frozen=True)
class Device:
    """``kernel_seconds`` for each word and layer of a step, whatever its rows; then ``flops`` a second."""

    kernel_seconds: float
    flops: float
    deviation: float
    source: str

    def priors(self, name: str, size: Recurrence, batch: float) -> dict[str, Prior]:
        """What a row takes on this device, and the odds of what a step takes whatever its rows are."""
        fixed = self.kernel_seconds * size.words * size.layers
        rows = batch * size.flops / self.flops
        return {
            f"row:{name}": Prior((fixed + rows) / batch, self.deviation),
            f"fixed:{name}": Prior(fixed / rows, 0.5),
        }


SEED = "10 epochs of 19.15 M Amazon reviews with PyTorch 1.1 in 2019 (tests/plan/tables/amazon.csv)"
DEVICES = {
    "K80": Device(163e-6, 0.215e12, MEASURED, SEED),
    "M60": Device(96e-6, 0.400e12, MEASURED, SEED),
}
# Newer ones start kernels faster and multiply much faster, but nobody has told us how fast on such models.
UNKNOWN = Device(60e-6, 1e12, NEVER_MEASURED, "no training of a recurrent text model on it is known")


def device_named(name: str) -> Device:
    return DEVICES.get(name, UNKNOWN)
