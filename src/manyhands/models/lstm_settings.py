"""What a user can choose of ``lstm``."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from manyhands.settings import Fraction, ModelSettings

BATCH = 128
STEPS_AN_EPOCH, LEAST_BATCH = 100, 16  # a small lesson takes smaller batches, or there are too few steps
MOST_WIDTH, MOST_LAYERS = 4096, 16


def part_of(batch: int, rows: int, of: int) -> int:
    """The batch for some rows of a lesson, which take as many steps as the whole lesson does in its own.

    >>> part_of(128, 1000, 1000), part_of(128, 250, 1000), part_of(16, 8, 120)
    (128, 32, 2)
    """
    return max(-(-batch * rows // of), 1)


class LstmSettings(ModelSettings):
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 5
    rate: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 0.004
    words: Annotated[int, Field(ge=1, le=2**24)] = 30_000
    min_count: Annotated[int, Field(ge=1, le=2**31)] = 2
    dim: Annotated[int, Field(ge=1, le=4096)] = 100
    vectors: str | None = None
    cell: Literal["lstm", "gru", "equations"] = "lstm"
    hidden: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,3}(,[1-9][0-9]{0,3})*$")] = "64"
    layers: Annotated[int, Field(ge=1, le=MOST_LAYERS)] = 1
    ways: Annotated[int, Field(ge=1, le=2)] = 1
    dropout: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    pool: Literal["max", "mean", "last"] = "max"
    length: Annotated[int, Field(ge=1, le=100_000)] = 300
    batch: Annotated[int, Field(ge=1, le=2**20)] | None = None
    loss: Literal["auto", "softmax", "one-vs-all"] = "auto"
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    momentum: Fraction = 0.9
    decay: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5.0

    @field_validator("hidden", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) else value

    @field_validator("hidden")
    @classmethod
    def _not_too_much(cls, value: str) -> str:
        sizes = [int(size) for size in value.split(",")]
        if max(sizes) > MOST_WIDTH or len(sizes) > MOST_LAYERS:
            raise ValueError(f"there can be {MOST_LAYERS} layers of {MOST_WIDTH} at most")
        return value

    @property
    def widths(self) -> tuple[int, ...]:
        """The size of each layer: as listed, or ``layers`` times the same."""
        sizes = tuple(int(size) for size in self.hidden.split(","))
        return sizes * self.layers if len(sizes) == 1 else sizes

    def batch_for(self, rows: int) -> int:
        return self.batch or min(BATCH, max(LEAST_BATCH, rows // STEPS_AN_EPOCH))
