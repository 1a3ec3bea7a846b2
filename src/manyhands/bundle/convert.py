"""``convert``: a bundle in the file formats of other tools.

``safetensors`` is the whole model in one file, ``onnx`` the way from feature numbers to
probabilities. How a text becomes feature numbers stays in manyhands, in ``onnx_inputs``: no operator of ONNX
gives the bytes of a string, so none can hash a word as a model does. The other formats are of word vectors;
``vec`` is the same as ``word2vec``.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.bundle.bundle import Bundle
from manyhands.bundle.calibration import Isotonic
from manyhands.bundle.word_vectors import embedding_of
from manyhands.errors import UsageError
from manyhands.formats.onnx import OnnxGraph, serialize_graph
from manyhands.formats.vector_writing import WRITERS, write_embedding
from manyhands.models.model import ONNX, Exportable
from manyhands.storage.files import refuse_to_replace, writing
from manyhands.storage.tensors import send_tensors
from manyhands.text.ragged import from_strings


def convert(bundle: Bundle, to: str, out: str, *, overwrite: bool = False) -> list[str]:
    """Write ``bundle`` to the file ``out``, in the format ``to``; returns the files written."""
    if to not in FORMATS:
        raise UsageError(f"there is no format '{to}' to convert to; there are: {', '.join(FORMATS)}")
    refuse_to_replace(out, overwrite)
    return FORMATS[to](bundle, out)


def _to_safetensors(bundle: Bundle, out: str) -> list[str]:
    arrays = bundle.model.arrays()
    facts = {"format": "manyhands", "config": bundle.config.model_dump_json()}
    with writing(out) as file:
        send_tensors(file, arrays, facts)
    return [out]


def _to_onnx(bundle: Bundle, out: str) -> list[str]:
    model: Exportable = bundle.need(ONNX, "cannot be converted to onnx")
    config, calibration = bundle.config, bundle.config.calibration
    labels = len(bundle.labels)
    graph = OnnxGraph(
        labels,
        None if calibration is None else calibration.inverse(labels),
        (calibration.said, calibration.right) if isinstance(calibration, Isotonic) else None,
    )
    model.add_to(graph)
    facts: dict[str, Any] = {"labels": config.labels, "text": config.text.model_dump(), "facts": config.facts}
    if calibration is not None:
        facts["calibration"] = calibration.kind
    data = serialize_graph(graph, config.model, facts)
    with writing(out) as file:
        file.write(data)
    return [out]


def onnx_inputs(bundle: Bundle, texts: Sequence[str]) -> list[dict[str, npt.NDArray[np.int64]]]:
    """What an ONNX session of this bundle is fed for each raw text: its feature numbers."""
    model: Exportable = bundle.need(ONNX, "cannot be converted to onnx")
    return [{"ids": ids} for ids in model.feature_ids(bundle.normaliser.ragged(from_strings(texts)))]


def _to_vectors(to: str, bundle: Bundle, out: str) -> list[str]:
    return write_embedding(embedding_of(bundle), to, out, overwrite=True)


FORMATS: dict[str, Callable[[Bundle, str], list[str]]] = {
    "onnx": _to_onnx,
    "vec": partial(_to_vectors, "word2vec"),
    "safetensors": _to_safetensors,
    **{to: partial(_to_vectors, to) for to in WRITERS},
}
