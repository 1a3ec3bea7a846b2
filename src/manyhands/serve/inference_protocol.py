"""The Open Inference Protocol, version 2: texts in as a tensor of BYTES, labels and probabilities out."""

from typing import Any

from manyhands import __version__
from manyhands.serve import schemas
from manyhands.serve.answers import Answer, Refusal, as_json
from manyhands.serve.api import CANNOT
from manyhands.serve.requests import Request, Route

TEXTS, LABELS, PROBABILITIES = "texts", "labels", "probabilities"
MOST_TOP = 1000


async def server_metadata(request: Request) -> Answer:
    """Tell which server this is."""
    return as_json({"name": "manyhands", "version": __version__, "extensions": []})


async def server_live(request: Request) -> Answer:
    """Tell whether the server is alive."""
    return as_json({"live": True})


async def server_ready(request: Request) -> Answer:
    """Tell whether the server takes requests."""
    _refuse_if_draining(request)
    return as_json({"ready": True})


async def model_ready(request: Request) -> Answer:
    """Tell whether the model takes requests."""
    _refuse_if_draining(request)
    return as_json({"name": request.model.name, "ready": True})


async def model_metadata(request: Request) -> Answer:
    """Describe the tensors of the model."""
    model = request.model
    return as_json(
        {
            "name": model.name,
            "versions": [model.version],
            "platform": f"manyhands_{model.bundle.config.model}",
            "inputs": [{"name": TEXTS, "datatype": "BYTES", "shape": [-1]}],
            "outputs": [
                {"name": LABELS, "datatype": "BYTES", "shape": [-1, -1]},
                {"name": PROBABILITIES, "datatype": "FP32", "shape": [-1, -1]},
            ],
        }
    )


async def infer(request: Request) -> Answer:
    """Predict the labels of texts, as tensors."""
    asked = request.parsed(schemas.InferenceRequest)
    texts, top, wanted = _texts(asked.inputs[0]), _top(asked.parameters), _wanted(asked.outputs)
    found = request.model.likeliest(await request.scores(texts), top)
    shape = [len(found), len(found[0][0])]
    outputs: dict[str, dict[str, Any]] = {
        LABELS: {"datatype": "BYTES", "data": [label for labels, _ in found for label in labels]},
        PROBABILITIES: {"datatype": "FP32", "data": [value for _, values in found for value in values]},
    }
    return as_json(
        {
            "model_name": request.model.name,
            "model_version": request.model.version,
            **({} if asked.id is None else {"id": asked.id}),
            "outputs": [{"name": name, "shape": shape, **outputs[name]} for name in wanted],
        }
    )


def _refuse_if_draining(request: Request) -> None:
    if request.service.draining:
        raise Refusal(503, "the service is ending, and takes no more requests", 1)


def _texts(given: schemas.InferenceInput) -> list[str]:
    """The texts of a tensor; nested lists are the same as flat ones."""
    if given.datatype != "BYTES":
        raise Refusal(422, f"inputs.0.datatype must be BYTES, not {given.datatype[:40]}")
    data = given.data
    while data and all(isinstance(part, list) for part in data):
        data = [item for part in data for item in part]
    count = 1
    for size in given.shape:
        count *= size
    if count != len(data):
        raise Refusal(422, f"inputs.0 has {len(data):,} texts, and its shape says {count:,}")
    if not data or not all(isinstance(text, str) for text in data):
        raise Refusal(422, "inputs.0.data must be a list of one or more strings")
    return data


def _top(parameters: dict[str, Any] | None) -> int:
    top = (parameters or {}).get("top", 1)
    if type(top) is not int or not 1 <= top <= MOST_TOP:
        raise Refusal(422, f"parameters.top must be a whole number from 1 to {MOST_TOP}")
    return top


def _wanted(outputs: list[schemas.InferenceOutputAsked] | None) -> list[str]:
    names = [output.name for output in outputs or []] or [LABELS, PROBABILITIES]
    for name in names:
        if name not in (LABELS, PROBABILITIES):
            raise Refusal(422, f"there is no output '{name[:40]}'; there are: {LABELS}, {PROBABILITIES}")
    return names


def routes(name: str) -> tuple[Route, ...]:
    """The name of the model is a part of our paths; what a request says is only compared with them."""
    model = f"/v2/models/{name}"
    return (
        Route("GET", "/v2", server_metadata, schemas.ServerMetadata),
        Route("GET", "/v2/health/live", server_live, schemas.ServerLive, for_all=True, always=True),
        Route("GET", "/v2/health/ready", server_ready, schemas.ServerReady, for_all=True, always=True),
        Route("GET", model, model_metadata, schemas.ModelMetadata),
        Route("GET", f"{model}/ready", model_ready, schemas.ModelReady, always=True),
        Route(
            "POST", f"{model}/infer", infer, schemas.InferenceAnswer, schemas.InferenceRequest, refuses=CANNOT
        ),
    )
