"""What a user can choose of ``lstm``."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from manyhands.catalog import OPTIMIZERS
from manyhands.settings import (
    BatchSize,
    Common,
    Dim,
    Epochs,
    Fraction,
    LearningRate,
    LossField,
    MinCount,
    ModelSettings,
    OneOf,
    PretrainedVectors,
    Search,
    Shapes,
    VocabularySize,
)

BATCH = 128
STEPS_AN_EPOCH, LEAST_BATCH = 100, 16  # a small lesson takes smaller batches, or there are too few steps
MOST_WIDTH, MOST_LAYERS = 4096, 16


def part_of(batch: int, rows: int, of: int) -> int:
    """The batch for some rows of a lesson, which take as many steps as the whole lesson does in its own.

    >>> part_of(128, 1000, 1000), part_of(128, 250, 1000), part_of(16, 8, 120)
    (128, 32, 2)
    """
    return max(-(-batch * rows // of), 1)


class RecurrentSettings(ModelSettings):
    """What recurrent models share."""

    cell: Annotated[
        Literal["lstm", "gru", "equations"],
        Field(description="Recurrent cell; equations is a plain, slow LSTM to read and to compare with."),
        Shapes(),
    ] = "lstm"
    optimizer: Annotated[str, OneOf(OPTIMIZERS), Field(description="Optimizer.")] = "adam"
    momentum: Annotated[Fraction, Field(description="Momentum of sgd.")] = 0.9
    weight_decay: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False, description="Weight decay.")] = 0.0
    clip_norm: Annotated[
        float, Field(gt=0, allow_inf_nan=False, description="Clip gradients to this norm.")
    ] = 5.0


class LstmSettings(RecurrentSettings):
    epochs: Annotated[Epochs, Search(2, 10, log=True)] = 5
    learning_rate: Annotated[LearningRate, Search(0.001, 0.02, log=True)] = 0.004
    vocabulary_size: VocabularySize = 30_000
    min_count: MinCount = 2
    dim: Annotated[Dim, Search(32, 200, log=True)] = 100
    pretrained_vectors: PretrainedVectors = None
    hidden_size: Annotated[
        str,
        Field(
            pattern=r"^[1-9][0-9]{0,3}(,[1-9][0-9]{0,3})*$",
            description="Size of the hidden state, or of each layer's, like 128,256.",
        ),
        Shapes(),
        Common("Size of the hidden state of a layer."),
        Search(32, 256, log=True),
    ] = "64"
    layers: Annotated[int, Field(ge=1, le=MOST_LAYERS, description="Recurrent layers."), Shapes()] = 1
    bidirectional: Annotated[bool, Field(description="Read texts from the end as well."), Shapes()] = False
    dropout: Annotated[
        float,
        Field(ge=0, lt=1, allow_inf_nan=False, description="Dropout between the layers."),
        Search(0.0, 0.5),
    ] = 0.0
    pooling: Annotated[
        Literal["max", "mean", "last"],
        Field(description="How the hidden states of a text become one: their maximum, mean, or the last."),
        Shapes(),
    ] = "max"
    max_length: Annotated[
        int, Field(ge=1, le=100_000, description="Words of a text that are read, at most."), Shapes()
    ] = 300
    batch_size: Annotated[
        BatchSize | None,
        Field(description="Rows per batch; by default 128, or fewer for a small dataset."),
        Common(),
    ] = None
    loss: Annotated[Literal["auto", "softmax", "one-vs-all"], LossField, Shapes()] = "auto"

    @field_validator("hidden_size", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) else value

    @field_validator("hidden_size")
    @classmethod
    def _not_too_much(cls, value: str) -> str:
        sizes = [int(size) for size in value.split(",")]
        if max(sizes) > MOST_WIDTH or len(sizes) > MOST_LAYERS:
            raise ValueError(f"there can be {MOST_LAYERS} layers of {MOST_WIDTH} at most")
        return value

    @property
    def widths(self) -> tuple[int, ...]:
        """The size of each layer: as listed, or ``layers`` times the same."""
        sizes = tuple(int(size) for size in self.hidden_size.split(","))
        return sizes * self.layers if len(sizes) == 1 else sizes

    def batch_for(self, rows: int) -> int:
        return self.batch_size or min(BATCH, max(LEAST_BATCH, rows // STEPS_AN_EPOCH))
