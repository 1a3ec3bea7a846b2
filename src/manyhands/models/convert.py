"""``convert``: a bundle in the file formats of other tools.

``safetensors`` is the whole model in one file, ``onnx`` the way from feature numbers to
probabilities. How a text becomes feature numbers stays in manyhands:
``manyhands.models.space.Featuriser``. The other formats are of word vectors; ``vec`` is the same as
``word2vec``, and makes the vectors of a classifier's words as it writes them.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from manyhands.errors import UsageError
from manyhands.models.bundle import IMPORTED, Bundle
from manyhands.models.embedding import HasEmbedding
from manyhands.models.fasttext import FastTextModel
from manyhands.models.fasttext_words import known, one_a_row
from manyhands.models.ngrams import NgramsModel
from manyhands.models.onnx_graphs import fasttext_graph, ngrams_graph, onnx_model
from manyhands.models.opening import embedding_of
from manyhands.models.vector_writing import NUMBERS_AT_ONCE, WRITERS, as_text, holdable, write_embedding
from manyhands.storage.files import refuse_to_replace, writing
from manyhands.storage.tensors import send_tensors
from manyhands.text.ragged import Ragged, from_arrow


def convert(bundle: Bundle, to: str, out: str, *, overwrite: bool = False) -> list[str]:
    """Write ``bundle`` to the file ``out``, in the format ``to``; returns the files written."""
    if to not in FORMATS:
        raise UsageError(f"there is no format '{to}' to convert to; there are: {', '.join(FORMATS)}")
    if not overwrite:
        refuse_to_replace(out)
    return FORMATS[to](bundle, out)


def _to_safetensors(bundle: Bundle, out: str) -> list[str]:
    arrays = bundle.stored or bundle.model.arrays()
    facts = {"format": "manyhands", "config": bundle.config.model_dump_json()}
    with writing(out) as file:
        send_tensors(file, arrays, facts)
    return [out]


def _to_onnx(bundle: Bundle, out: str) -> list[str]:
    model = bundle.model
    if isinstance(model, NgramsModel):
        graph = ngrams_graph(model)
    elif isinstance(model, FastTextModel):
        graph = fasttext_graph(model)
    else:
        raise _wrong_model(bundle, "onnx", "an ngrams or fasttext model")
    data = onnx_model(graph, bundle.config)
    with writing(out) as file:
        file.write(data)
    return [out]


def _to_vec(bundle: Bundle, out: str) -> list[str]:
    model: object = bundle.model
    if isinstance(model, HasEmbedding):
        return _to_vectors("word2vec", bundle, out)
    if isinstance(model, NgramsModel):
        raise UsageError("an ngrams model has no word vectors; train one with --model fasttext")
    if not isinstance(model, FastTextModel):
        raise _wrong_model(bundle, "vec", "a fasttext model")
    words = from_arrow(bundle.vocabulary.words)
    words = words.take(np.flatnonzero(holdable(bundle.vocabulary.words) & known(model.space, words)))
    with writing(out) as file:
        file.write(f"{len(words)} {model.dim}\n".encode())
        for lines in _lines(model, words):
            file.write(lines)
    return [out]


def _to_vectors(to: str, bundle: Bundle, out: str) -> list[str]:
    return write_embedding(embedding_of(bundle), to, out, overwrite=True)


def _wrong_model(bundle: Bundle, to: str, right: str) -> UsageError:
    kind = (
        "imported from fastText" if bundle.config.model == IMPORTED else f"of a {bundle.config.model} model"
    )
    return UsageError(f"{to} needs a bundle of {right} that was trained here, and this one is {kind}")


FORMATS: dict[str, Callable[[Bundle, str], list[str]]] = {
    "onnx": _to_onnx,
    "vec": _to_vec,
    "safetensors": _to_safetensors,
    **{to: partial(_to_vectors, to) for to in WRITERS},
}


def _lines(model: FastTextModel, words: Ragged) -> Iterator[Any]:
    step = max(NUMBERS_AT_ONCE // model.dim, 1)
    for start in range(0, len(words), step):
        some = words.take(np.arange(start, min(start + step, len(words))))
        yield as_text(some, model.sentence_vectors(one_a_row(some)))
