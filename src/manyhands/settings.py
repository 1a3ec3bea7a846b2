"""What a user can choose: frozen, checked once, saved with what was made by it."""

from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from manyhands.errors import UsageError

LabelScheme = Literal["auto", "polarity", "polarity-strict", "stars", "as-is", "none"]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Settings(BaseModel):
    """The manners all settings share: no change after the check, no unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Build, with a user's mistakes told in one sentence.

        >>> TextSettings.checked(punctation="drop")
        Traceback (most recent call last):
        manyhands.errors.UsageError: there is no setting 'punctation'; did you mean 'punctuation'?
        """
        for name in values:
            if name not in cls.model_fields:
                raise UsageError(f"there is no setting '{name}'; {_nearest(name, list(cls.model_fields))}")
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            if not first["loc"]:  # said of all settings together
                raise UsageError(first["msg"].removeprefix("Value error, ")) from None
            name = str(first["loc"][-1]).replace("_", "-")
            raise UsageError(f"--{name}: {first['msg']}, not {str(first['input'])[:40]!r}") from None


def _nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(known)}"


class TextSettings(Settings):
    """How raw text becomes tokens; saved with every dataset and model."""

    lower: bool = True
    punctuation: Literal["token", "drop", "keep"] = "token"
    html: bool = True

    @model_validator(mode="after")
    def _all_or_nothing(self) -> Self:
        if self.punctuation == "keep" and (self.lower or self.html):
            raise ValueError(
                "punctuation keep takes text as it is: it goes with --keep-case and --no-html only"
            )
        return self


class PrepareSettings(Settings):
    """All that decides what a dataset holds; nothing that only decides how fast it is made."""

    format: str = "auto"
    text_field: str | None = None
    label_field: str | None = None
    weight_field: str | None = None
    labels: LabelScheme = "auto"
    deduplicate: bool = True
    vocabulary: Annotated[int, Field(ge=1, le=2**31)] = 1_000_000
    min_count: Annotated[int, Field(ge=1, le=2**62)] = 1
    valid: Fraction = 0.1
    test: Fraction = 0.1
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    max_rejected: Fraction = 0.01
    text: TextSettings = TextSettings()

    @model_validator(mode="after")
    def _leave_something_to_train_on(self) -> Self:
        if self.valid + self.test >= 1:
            raise ValueError("valid and test together leave nothing to train on")
        return self


class ModelSettings(Settings):
    """What every model has; each adds its own."""

    epochs: Annotated[int, Field(ge=1, le=10_000)]
    rate: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0


class LetterRuns(Settings):
    """Runs of letters of a word, beside the word itself."""

    chars: Annotated[str, Field(pattern=r"^[0-9]{1,2}-[0-9]{1,2}$")] = "0-0"

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        least, most = self.letters
        if (least, most) != (0, 0) and not 1 <= least <= most <= 10:
            raise ValueError(f"--chars {self.chars} is no range of 1 to 10 letters; write it like 3-5")
        return self

    @property
    def letters(self) -> tuple[int, int]:
        """Runs of so many letters, from and to; (0, 0) for none."""
        least, _, most = self.chars.partition("-")
        return int(least), int(most)


class NgramSettings(ModelSettings, LetterRuns):
    """What the models over hashed n-grams share."""

    ngrams: Annotated[int, Field(ge=1, le=5)]
    buckets: Annotated[int, Field(ge=1, le=2**28)]
    min_count: Annotated[int, Field(ge=1, le=255)]


class SpreadSettings(Settings):
    """Who shares the work. Models that share batches come out the same, up to rounding; others merge."""

    spread: str = "single"
    workers: Annotated[int, Field(ge=1, le=512)] | None = None
    balance: str = "steps:50"
    nodes: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,3}(:[1-9][0-9]{0,3})?$")] = "1"
    rendezvous: Annotated[str, Field(pattern=r"^[^\s:/]+:[0-9]{1,5}$")] | None = None
    restarts: Annotated[int, Field(ge=0, le=10_000)] = 10
    stall_seconds: Annotated[float, Field(ge=1, le=86_400)] = 120.0
    partitions: Annotated[int, Field(ge=1, le=100_000)] | None = None
    rounds: Annotated[int, Field(ge=1, le=100_000)] | None = None
    master: str | None = None
    outer_momentum: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    spark_conf: tuple[str, ...] = ()


class FrameSettings(Settings):
    """How training goes, whatever the model."""

    deterministic: bool = False
    patience: Annotated[int, Field(ge=1, le=10_000)] = 2
    class_weights: Literal["none", "balanced"] = "none"
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warm_up: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 60.0
