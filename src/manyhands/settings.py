"""What a user can choose. A setting is written once, by its owner: type, range, default, help, and what else
is to be known of it. The command line, the reference, ``TextClassifier`` and ``tune`` are made from that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from manyhands.catalog import SOURCES
from manyhands.errors import UsageError

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Flag:
    """How the command line names a setting, where its own name with dashes is not enough.

    ``name`` replaces the name, as in ``--lower/--keep-case``; ``also`` is another one beside it.
    """

    name: str = ""
    also: str = ""


class Search(NamedTuple):
    """The values of a setting that ``tune`` looks at: whole numbers if ``low`` is whole."""

    low: float
    high: float
    log: bool = False


class ChangesTask:
    """Marks a setting of word vectors that changes what there is to guess in held-out text.

    The likelihoods of different values cannot be compared, so ``tune`` searches it only by sets of words.
    """


@dataclass(frozen=True)
class OneOf:
    """Marks a setting whose values are the names of a catalog."""

    names: Mapping[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, name: str) -> str:
        if name not in self.names:
            raise ValueError(f"Input should be one of {', '.join(self.names)}")
        return name


class Shapes:
    """Marks a setting that shapes the arrays of a model: it cannot change when the model is continued."""


class ReadByAll:
    """Marks a setting that names a file which decides about the arrays: every worker reads it."""


class Secret:
    """Marks a setting that may hold secrets: no record keeps it."""


@dataclass(frozen=True)
class Common:
    """Marks a setting that most people look for first; ``text`` suits owners that describe it differently."""

    text: str = ""


class Settings(BaseModel):
    """The manners all settings share: no change after the check, no unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def create(cls, **values: Any) -> Self:
        """Build, with a user's mistakes told in one sentence.

        >>> TextSettings.create(punctation="drop")
        Traceback (most recent call last):
        manyhands.errors.UsageError: there is no setting 'punctation'; did you mean 'punctuation'?
        """
        for name in values:
            if name not in cls.model_fields:
                raise UsageError(f"there is no setting '{name}'; {nearest(name, list(cls.model_fields))}")
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            if not first["loc"]:  # said of all settings together
                raise UsageError(first["msg"].removeprefix("Value error, ")) from None
            name, message = option(str(first["loc"][-1])), first["msg"].removeprefix("Value error, ")
            raise UsageError(f"{name}: {message}, not {str(first['input'])[:40]!r}") from None

    @classmethod
    def marked(cls, kind: type[Kind]) -> dict[str, Kind]:
        """The settings that carry a mark of this kind, such as ``Search``, each with its mark."""
        names = {**cls.__annotations__, **cls.model_fields}  # its own first, in the order of their lines
        found = {name: mark_of(cls.model_fields[name], kind) for name in names if name in cls.model_fields}
        return {name: mark for name, mark in found.items() if mark is not None}


def mark_of(field: FieldInfo, kind: type[Kind]) -> Kind | None:
    return next((mark for mark in field.metadata if isinstance(mark, kind)), None)


def option(name: str) -> str:
    """A setting's name as the command line has it.

    >>> option("learning_rate")
    '--learning-rate'
    """
    return f"--{name.replace('_', '-')}"


def nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(known)}"


# Settings that several owners have, each with a default of its own.
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Epochs = Annotated[int, Field(ge=1, le=10_000, description="Passes over the training rows."), Common()]
LearningRate = Annotated[
    float,
    Field(
        gt=0, le=1000, allow_inf_nan=False, description="Peak learning rate; --schedule says how it changes."
    ),
    Flag(also="--lr"),
    Common(),
]
Seed = Annotated[int, Field(ge=0, lt=2**63, description="Random seed."), Common()]
Dim = Annotated[int, Field(ge=1, le=4096, description="Size of the embedding vectors."), Shapes(), Common()]
MinCount = Annotated[int, Field(ge=1, le=2**31, description="Ignore words that occur fewer times than this.")]
VocabularySize = Annotated[
    int, Field(ge=1, le=2**31 - 1, description="Largest vocabulary: the most frequent words are kept.")
]
BatchSize = Annotated[int, Field(ge=1, le=2**24), Common("Rows or words per batch.")]
LossField = Field(description="Loss function; auto chooses by the labels.")
CharNgrams = Annotated[
    str,
    Field(
        pattern=r"^[0-9]{1,2}-[0-9]{1,2}$",
        description="Also character n-grams of these lengths, like 3-6; 0-0 for none.",
    ),
    Shapes(),
]
Buckets = Annotated[
    int, Field(ge=1, le=2**28, description="Hash buckets for n-grams, at most (the hashing trick)."), Shapes()
]
PretrainedVectors = Annotated[
    str | None,
    Field(description="File of word vectors to start from, with --dim numbers each."),
    Flag(also="--vectors"),
]
Negatives = Annotated[
    int, Field(ge=1, le=1000, description="Negative samples drawn for each positive example.")
]

# Of a stream, whose end nobody knows.
StreamLearningRate = Annotated[
    float,
    Field(
        gt=0,
        le=1000,
        allow_inf_nan=False,
        description="Learning rate at the start; --anneal says how it falls.",
    ),
    Flag(also="--lr"),
    Common(),
]
Anneal = Annotated[
    float,
    Field(
        ge=0,
        allow_inf_nan=False,
        description="Divide the learning rate by the root of 1 + (rows or words seen) / this; 0: never.",
    ),
]


class TextSettings(Settings):
    """How raw text becomes tokens; saved with every dataset and model."""

    lower: Annotated[bool, Field(description="Lower-case all text."), Flag("--lower/--keep-case")] = True
    punctuation: Annotated[
        Literal["token", "drop", "keep"],
        Field(
            description="Punctuation marks become tokens of their own, are dropped, or stay where they are."
        ),
    ] = "token"
    html: Annotated[bool, Field(description="Decode HTML such as &amp; and <br />.")] = True

    @model_validator(mode="after")
    def _all_or_nothing(self) -> Self:
        if self.punctuation == "keep" and (self.lower or self.html):
            raise ValueError(
                "--punctuation keep takes text as it is: it goes with --keep-case and --no-html only"
            )
        return self


LabelScheme = Literal["auto", "polarity", "polarity-strict", "stars", "as-is", "none"]


class FileSettings(Settings):
    """Where raw files hold what is read."""

    format: Annotated[
        str, Field(description=f"Format of the files: {', '.join(SOURCES)}; auto detects it.")
    ] = "auto"
    text_field: Annotated[str | None, Field(description="Field or column that holds the text.")] = None
    label_field: Annotated[str | None, Field(description="Field or column that holds the label.")] = None


class ReadingSettings(FileSettings):
    """How raw files are read, with their labels."""

    labels: Annotated[
        LabelScheme,
        Field(
            description="How labels become classes: polarity (1-3 stars negative, 4-5 positive), "
            "polarity-strict (the same without 3 stars), stars (five classes), as-is (any names, also "
            "multi-label), none; auto takes polarity for stars, else as-is."
        ),
    ] = "auto"
    weight_field: Annotated[str | None, Field(description="Field or column with the weight of a row.")] = None


class PrepareSettings(ReadingSettings):
    """All that decides what a dataset holds; nothing that only decides how fast it is made."""

    deduplicate: Annotated[
        bool,
        Field(description="Merge rows with equal texts; the most frequent label wins."),
        Flag("--deduplicate/--keep-duplicates"),
    ] = True
    vocabulary_size: VocabularySize = 1_000_000
    min_count: MinCount = 1
    valid: Annotated[Fraction, Field(description="Share of the rows for validation, drawn by text.")] = 0.1
    test: Annotated[Fraction, Field(description="Share of the rows for testing, drawn by text.")] = 0.1
    seed: Annotated[Seed, Field(description="Seed of the split.")] = 0
    max_rejected: Annotated[
        Fraction, Field(description="Stop if a larger share of the rows cannot be used.")
    ] = 0.01
    text: TextSettings = TextSettings()

    @model_validator(mode="after")
    def _leave_something_to_train_on(self) -> Self:
        if self.valid + self.test >= 1:
            raise ValueError("--valid and --test together leave nothing to train on")
        return self


@dataclass(frozen=True)
class Alternative:
    """Settings that training may choose by itself, if at least so much ``effort`` is wanted.

    Some are only ``for_one_label`` a row.
    """

    settings: Mapping[str, Any]
    effort: int = 1
    for_one_label: bool = False


class Axis(NamedTuple):
    """Alternatives of which training takes one, or none of them.

    Where the best of them depends on how many rows there are, it is looked for ``again`` on more of them.
    """

    alternatives: tuple[Alternative, ...]
    again: bool = False


class ModelSettings(Settings):
    """What every model has; each adds its own. ``choices`` are what training may choose, axis by axis."""

    choices: ClassVar[tuple[Axis, ...]] = ()

    epochs: Epochs
    learning_rate: LearningRate
    seed: Seed = 0


class CharNgramSettings(Settings):
    """Character n-grams of a word, beside the word itself."""

    char_ngrams: CharNgrams = "0-0"

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        least, most = self.char_lengths
        if (least, most) != (0, 0) and not 1 <= least <= most <= 10:
            raise ValueError(
                f"--char-ngrams {self.char_ngrams} is not a range from 1 to 10; write it like 3-5"
            )
        return self

    @property
    def char_lengths(self) -> tuple[int, int]:
        """From and to how many characters; (0, 0) for none."""
        least, _, most = self.char_ngrams.partition("-")
        return int(least), int(most)


MEASURES = ("accuracy", "macro_f1", "micro_f1", "log_loss")  # of classifiers; only of the last less is better
F1_OF = "f1:"


def _measure(text: str) -> str:
    """A measure that epochs can be compared by; whether there is the label is known when rows are read."""
    of_label = text.startswith(F1_OF) and text != F1_OF
    if text not in ("auto", *MEASURES) and not of_label:
        raise ValueError(f"choose auto, {', '.join(MEASURES)} or {F1_OF} with the name of a label")
    return text


def weights_by_class(text: str) -> dict[str, float]:
    """Given weights of classes, by name.

    >>> weights_by_class("neg=3, very good=0.5")
    {'neg': 3.0, 'very good': 0.5}
    """
    found = {}
    for part in text.split(","):
        name, _, value = part.rpartition("=")
        try:
            weight = float(value)
        except ValueError:
            weight = -1.0
        if not name.strip() or not 0 <= weight < float("inf") or name.strip() in found:
            raise ValueError("choose none, balanced or a weight for each class, like neg=3,pos=1")
        found[name.strip()] = weight
    return found


def _class_weights(text: str) -> str:
    if text not in ("none", "balanced"):
        weights_by_class(text)
    return text


CalibrationMethod = Literal["auto", "temperature", "isotonic", "none"]


class TrainingSettings(Settings):
    """How training goes, whatever the model."""

    effort: Annotated[
        int,
        Field(
            ge=0,
            le=3,
            description="How hard to look for good settings, of those not given, by cross-validation on the "
            "training rows: 0 not at all, 1 for seconds, 3 for minutes.",
        ),
        Common(),
    ] = 1
    deterministic: Annotated[
        bool, Field(description="Reproducible: the same weights in every run. Trains on one thread.")
    ] = False
    early_stopping: Annotated[
        int,
        Field(ge=1, le=10_000, description="Stop after this many epochs without a better validation score."),
        Common(),
    ] = 2
    judge_by: Annotated[
        str,
        Field(
            description="Validation score by which epochs are compared: accuracy, macro_f1, micro_f1, "
            "log_loss, or f1:LABEL, the F1 of one label. auto takes accuracy; macro_f1 with "
            "--class-weights balanced; micro_f1 for multi-label rows."
        ),
        AfterValidator(_measure),
    ] = "auto"
    class_weights: Annotated[
        str,
        Field(
            description="How much rows of each class count: balanced, those of rare classes more; or as "
            "given, like neg=3,pos=1, where classes that are not named count 1."
        ),
        AfterValidator(_class_weights),
    ] = "none"
    calibrate: Annotated[
        CalibrationMethod,
        Field(
            description="Calibrate the probabilities of a classifier on the validation rows: by a "
            "temperature, by an isotonic curve, or not at all; auto takes what their "
            "cross-validation prefers."
        ),
    ] = "auto"
    schedule: Annotated[
        Literal["linear", "cosine", "constant"], Field(description="Learning-rate schedule.")
    ] = "linear"
    warmup: Annotated[
        float,
        Field(
            ge=0,
            lt=1,
            allow_inf_nan=False,
            description="Warm-up: share of the training in which the learning rate rises.",
        ),
    ] = 0.0
    checkpoint_seconds: Annotated[float, Field(ge=0, description="Seconds between checkpoints.")] = 60.0
    price: Annotated[
        float | None,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="What all machines of the run cost together, in dollars an hour; what it comes to is "
            "recorded.",
        ),
    ] = None
    budget: Annotated[
        float | None,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="Dollars to spend at --price: the run stops at a checkpoint before they are gone. "
            "With --resume, what was spent before counts.",
        ),
    ] = None

    @model_validator(mode="after")
    def _budget_has_a_price(self) -> Self:
        if self.budget is not None and self.price is None:
            raise ValueError("--budget needs --price: what all machines cost together, in dollars an hour")
        return self
