"""fastText behind FastAPI, as one would write it: the peer of ``manyhands serve`` in bench/serve.py.

``python serve_fasttext.py MODEL.bin PORT``. The handler is ``async def``: as ``def``, FastAPI would call it
in a thread, which takes longer than fastText takes for a review.
"""

import sys

import fasttext
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()
model = fasttext.load_model(sys.argv[1])


class Texts(BaseModel):
    texts: list[str]
    top: int = 1


class Prediction(BaseModel):
    labels: list[str]
    scores: list[float]


class Predictions(BaseModel):
    predictions: list[Prediction]


@app.post("/predict")
async def predict(asked: Texts) -> Predictions:
    texts = [text.replace("\n", " ") for text in asked.texts]
    labels, scores = model.predict(texts, k=asked.top)
    pairs = zip(labels, scores, strict=True)
    return Predictions(
        predictions=[Prediction(labels=some, scores=map(float, values)) for some, values in pairs]
    )


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), access_log=False, log_level="warning")
