"""The ONNX graphs of the models: from the feature numbers of one text to the probability of each label.

``ids`` are feature numbers as ``manyhands.models.space.Featuriser`` makes them: distinct ones for
``ngrams``, repeated ones too for ``fasttext``. A feature that adds nothing is put behind the given
ones, because runtimes differ in what the sum over no features is.
"""

import json
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.errors import UsageError, missing_extra
from manyhands.models.bundle import BundleConfig
from manyhands.models.fasttext import FastTextModel
from manyhands.models.ngrams import NgramsModel
from manyhands.models.ngrams_kernels import LEAST_LENGTH

OPSET = 17
IR_VERSION = 8  # the first that knows this opset, so that older runtimes read the file as well
LARGEST_BYTES = (1 << 31) - (1 << 20)  # of one protobuf message, with room for all but the numbers


class _Graph:
    """Nodes and constants as they are put together; every method returns the name of what it makes."""

    def __init__(self, labels: int) -> None:
        self._onnx = _onnx()
        self.labels = labels
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []

    def given(self, name: str, kind: str) -> str:
        self.inputs.append(self._value(name, kind, "features"))
        return name

    def constant(self, name: str, array: npt.NDArray[Any]) -> str:
        self.constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, operator: str, *given: str, to: str, **attributes: Any) -> str:
        self.nodes.append(self._onnx.helper.make_node(operator, list(given), [to], name=to, **attributes))
        return to

    def proto(self) -> Any:
        outputs = [self._value("probabilities", "FLOAT", self.labels)]
        return self._onnx.helper.make_graph(self.nodes, "manyhands", self.inputs, outputs, self.constants)

    def _value(self, name: str, kind: str, size: str | int) -> Any:
        return self._onnx.helper.make_tensor_value_info(name, getattr(self._onnx.TensorProto, kind), [size])


def _onnx() -> Any:
    try:
        import onnx  # noqa: PLC0415
    except ImportError:
        raise missing_extra("onnx", "onnx") from None
    return onnx


def ngrams_graph(model: NgramsModel) -> _Graph:
    """Gather the rows, scale them, bring the text to length 1, add the bias."""
    columns = len(model.bias)
    _refuse_if_too_large(model.table.shape[0] * (1 + columns))
    graph = _Graph(len(model.labels))
    ids = _with_neutral(graph, len(model.table))
    graph.constant("scales", _with_zero_row(model.table[:, 0]))
    graph.constant("weights", _with_zero_row(model.table[:, 1 : 1 + columns]))
    graph.constant("bias", model.bias)
    scale = graph.node("Gather", "scales", ids, to="scale")
    rows = graph.node("Gather", "weights", ids, to="rows")
    squares = graph.node("ReduceSumSquare", scale, to="squares", keepdims=0)
    at_least = graph.node("Add", squares, graph.constant("least", np.array(LEAST_LENGTH)), to="at_least")
    length = graph.node("Sqrt", at_least, to="length")
    total = graph.node("MatMul", scale, rows, to="total")
    scores = graph.node("Add", graph.node("Div", total, length, to="direction"), "bias", to="scores")
    if columns < len(model.labels):  # one column for two classes: that of the second
        second = graph.node("Sigmoid", scores, to="second")
        first = graph.node("Sub", graph.constant("one", np.ones(1, np.float32)), second, to="first")
        graph.node("Concat", first, second, to="probabilities", axis=0)
    else:
        _probabilities(graph, scores, model.loss)
    return graph


def fasttext_graph(model: FastTextModel) -> _Graph:
    """The mean of the vectors of the features, and its product with the vector of each label."""
    _refuse_if_too_large((len(model.vectors) + len(model.labels)) * model.dim)
    graph = _Graph(len(model.labels))
    ids = _with_neutral(graph, len(model.vectors))
    graph.constant("vectors", _with_zero_row(model.vectors[:, : model.dim]))
    graph.constant("outputs", model.outputs[:, : model.dim])
    rows = graph.node("Gather", "vectors", ids, to="rows")
    axis = graph.constant("axis", np.zeros(1, np.int64))
    total = graph.node("ReduceSum", rows, axis, to="total", keepdims=0)
    one = graph.constant("one", np.array(1, np.float32))
    size = graph.node("CastLike", graph.node("Size", "ids", to="size"), one, to="given")
    count = graph.node("Max", size, one, to="count")
    mean = graph.node("Div", total, count, to="mean")
    _probabilities(graph, graph.node("MatMul", "outputs", mean, to="scores"), model.loss)
    return graph


def _with_neutral(graph: _Graph, features: int) -> str:
    """The feature numbers, and behind them that of the row of zeros."""
    ids = graph.given("ids", "INT64")
    neutral = graph.constant("neutral", np.array([features], np.int64))
    return graph.node("Concat", ids, neutral, to="all_ids", axis=0)


def _with_zero_row(array: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    out = np.zeros((len(array) + 1, *array.shape[1:]), np.float32)
    out[:-1] = array
    return out


def _probabilities(graph: _Graph, scores: str, loss: str) -> None:
    if loss == "softmax":
        graph.node("Softmax", scores, to="probabilities", axis=0)
    else:
        graph.node("Sigmoid", scores, to="probabilities")


def _refuse_if_too_large(numbers: int) -> None:
    if numbers * 4 > LARGEST_BYTES:
        raise UsageError(
            f"the model has {numbers * 4 / (1 << 30):.1f} GB of weights and an ONNX file holds 2 GB at most; "
            "convert to safetensors, or train with fewer --buckets or a higher --min-count"
        )


def onnx_model(graph: _Graph, config: BundleConfig) -> bytes:
    """The file, checked; what is needed to make sense of its numbers is in its metadata."""
    onnx = _onnx()
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    proto = onnx.helper.make_model(
        graph.proto(),
        producer_name="manyhands",
        producer_version=version("manyhands"),
        opset_imports=opsets,
        ir_version=IR_VERSION,
    )
    texts = {"labels": config.labels, "text": config.text.model_dump(), "facts": config.facts}
    facts = {name: json.dumps(value, ensure_ascii=False) for name, value in texts.items()}
    onnx.helper.set_model_props(proto, {"model": config.model, **facts})
    onnx.checker.check_model(proto, full_check=True)
    data: bytes = proto.SerializeToString()
    return data
