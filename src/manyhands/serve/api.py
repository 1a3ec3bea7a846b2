"""Our own endpoints: the verbs of the command line over HTTP, with the same words in and out."""

from manyhands.models.model import EXPLAIN
from manyhands.serve import schemas
from manyhands.serve.answers import Answer, Refusal, as_json
from manyhands.serve.metrics import CONTENT_TYPE
from manyhands.serve.requests import Request, Route


async def predict(request: Request) -> Answer:
    """Predict the labels of texts."""
    asked = request.parsed(schemas.PredictRequest)
    scores = await request.scores(asked.texts)
    found = request.model.likeliest(scores, asked.top)
    return as_json({"predictions": [{"labels": labels, "scores": values} for labels, values in found]})


async def explain(request: Request) -> Answer:
    """Show what each word and n-gram adds to a prediction."""
    asked = request.parsed(schemas.ExplainRequest)
    request.checked([asked.text])
    request.model.bundle.need(EXPLAIN, "cannot be explained")
    if asked.label is not None and asked.label not in request.model.labels:
        raise Refusal(422, f"the model has no label '{asked.label[:80]}'; GET /model lists them")
    return as_json(await request.aside(request.model.explain, asked.text, asked.label))


async def nearest(request: Request) -> Answer:
    """Find the words most similar to each word."""
    asked = request.parsed(schemas.NearestRequest)
    words = request.checked(asked.words, "words")
    return as_json({"neighbours": await request.aside(request.model.nearest, words, asked.top)})


async def analogy(request: Request) -> Answer:
    """Find the word that completes an analogy."""
    asked = request.parsed(schemas.AnalogyRequest)
    words = asked.first, asked.second, asked.third
    request.checked([*words], "words")
    answers = await request.aside(request.model.analogy, *words, asked.top, asked.method)
    return as_json({**asked.model_dump(exclude={"top"}), "answers": answers})


async def embed(request: Request) -> Answer:
    """Give the vectors of words."""
    words = request.checked(request.parsed(schemas.EmbedRequest).words, "words")
    vectors = await request.aside(request.model.vectors, words)
    return as_json({"dim": vectors.shape[1], "vectors": vectors.tolist()})


async def model(request: Request) -> Answer:
    """Tell which model is served, and what can be asked of it."""
    return as_json(request.model.facts())


async def health(request: Request) -> Answer:
    """Tell whether the service takes requests."""
    if request.service.draining:
        raise Refusal(503, "the service is ending, and takes no more requests", 1)
    return as_json({"status": "ready"})


async def metrics(request: Request) -> Answer:
    """Give counts and times to Prometheus."""
    text = request.service.metrics.text(request.model.name, request.model.version)
    return Answer(text.encode(), CONTENT_TYPE)


CANNOT = (409, 422)

ROUTES = (
    Route("POST", "/predict", predict, schemas.Predictions, schemas.PredictRequest, refuses=CANNOT),
    Route("POST", "/explain", explain, schemas.Explained, schemas.ExplainRequest, refuses=CANNOT),
    Route("POST", "/nearest", nearest, schemas.NearestWords, schemas.NearestRequest, refuses=CANNOT),
    Route("POST", "/analogy", analogy, schemas.Analogy, schemas.AnalogyRequest, refuses=CANNOT),
    Route("POST", "/embed", embed, schemas.Vectors, schemas.EmbedRequest, refuses=CANNOT),
    Route("GET", "/model", model, schemas.ModelFacts),
    Route("GET", "/health", health, schemas.Health, for_all=True, always=True),
    Route("GET", "/metrics", metrics, {CONTENT_TYPE.split(";")[0]: {"type": "string"}}, always=True),
)
