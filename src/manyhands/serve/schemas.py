"""What requests hold and what answers hold; the OpenAPI description is made from these."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Texts = Annotated[
    list[str], Field(min_length=1, description="Texts, as they are; the model normalises them.")
]
Words = Annotated[list[str], Field(min_length=1, description="Words.")]
Top = Annotated[int, Field(ge=1, le=1000, description="How many to give, the best first.")]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class PredictRequest(_Asked):
    texts: Texts
    top: Top = 1


class Prediction(BaseModel):
    """As ``manyhands predict --json`` prints it."""

    labels: list[str]
    scores: list[float]


class Predictions(BaseModel):
    predictions: list[Prediction]


class ExplainRequest(_Asked):
    text: str
    label: Annotated[str | None, Field(description="By default the most likely one.")] = None


class Part(BaseModel):
    ngram: str
    part: float
    place: int | None = None


class WordPart(BaseModel):
    word: str
    part: float


class Explained(BaseModel):
    """``bias`` and all ``parts`` add up to ``score``, and so do ``bias`` and all ``words``."""

    label: str
    probability: float
    score: float
    bias: float
    parts: list[Part]
    unknown: list[str]
    words: list[WordPart]


class NearestRequest(_Asked):
    words: Words
    top: Top = 10


class Neighbour(BaseModel):
    word: str
    cosine: float


class Neighbours(BaseModel):
    word: str
    nearest: list[Neighbour]


class NearestWords(BaseModel):
    neighbours: list[Neighbours]


class AnalogyRequest(_Asked):
    """``first`` is to ``second`` as ``third`` is to what?"""

    first: str
    second: str
    third: str
    top: Top = 10
    method: Literal["add", "mul"] = "add"


class AnalogyAnswer(BaseModel):
    word: str
    score: float


class Analogy(BaseModel):
    first: str
    second: str
    third: str
    method: str
    answers: list[AnalogyAnswer]


class EmbedRequest(_Asked):
    words: Words


class Vectors(BaseModel):
    dim: int
    vectors: list[list[float]]


class Health(BaseModel):
    status: str


class ModelFacts(BaseModel):
    """What is served, and what can be asked of it."""

    name: str
    version: str
    model: str
    can: list[str]
    labels: list[str]
    words: int
    dim: int


class Error(BaseModel):
    error: str


# Open Inference Protocol, version 2. Others may send fields that we have no use for.


class InferenceInput(BaseModel):
    name: str
    shape: list[Annotated[int, Field(ge=0)]]
    datatype: str
    data: list[Any]
    parameters: dict[str, Any] | None = None


class InferenceOutputAsked(BaseModel):
    name: str
    parameters: dict[str, Any] | None = None


class InferenceRequest(BaseModel):
    id: str | None = None
    parameters: Annotated[
        dict[str, Any] | None, Field(description='{"top": n}: how many labels, the most likely first.')
    ] = None
    inputs: Annotated[list[InferenceInput], Field(min_length=1, max_length=1)]
    outputs: list[InferenceOutputAsked] | None = None


class InferenceOutput(BaseModel):
    name: str
    shape: list[int]
    datatype: str
    data: list[str] | list[float]


class InferenceAnswer(BaseModel):
    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[InferenceOutput]


class Tensor(BaseModel):
    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    name: str
    versions: list[str]
    platform: str
    inputs: list[Tensor]
    outputs: list[Tensor]


class ServerMetadata(BaseModel):
    name: str
    version: str
    extensions: list[str]


class ServerLive(BaseModel):
    live: bool


class ServerReady(BaseModel):
    ready: bool


class ModelReady(BaseModel):
    name: str
    ready: bool
