"""The ONNX graphs of the models: from the feature numbers of one text to the probability of each label.

``ids`` are feature numbers as ``manyhands.models.ngram.features.Featuriser`` makes them: distinct ones for
``ngrams``, repeated ones too for ``fasttext``. A feature that adds nothing is put behind the given
ones, because runtimes differ in what the sum over no features is.
"""

import json
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.errors import UsageError, missing_extra

OPSET = 17
IR_VERSION = 8  # the first that knows this opset, so that older runtimes read the file as well
LARGEST_BYTES = (1 << 31) - (1 << 20)  # of one protobuf message, with room for all but the numbers


class OnnxGraph:
    """Nodes and constants as they are put together; every method returns the name of what it makes."""

    def __init__(
        self,
        labels: int,
        scale: npt.NDArray[np.float32] | None = None,
        curve: tuple[Sequence[float], Sequence[float]] | None = None,
    ) -> None:
        """``scale`` multiplies the scores of each label before they become probabilities.

        A ``curve`` leads from the probability of the likeliest label to what it shall be, by straight pieces.
        """
        self._onnx = _import_onnx()
        self.labels = labels
        self._scale, self._curve = scale, curve
        self.outcome = "probabilities" if curve is None else "before_curve"  # what a model's last node makes
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []

    def input(self, name: str, kind: str) -> str:
        self.inputs.append(self._value(name, kind, "features"))
        return name

    def constant(self, name: str, array: npt.NDArray[Any]) -> str:
        self.constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, operator: str, *given: str, to: str, **attributes: Any) -> str:
        self.nodes.append(self._onnx.helper.make_node(operator, list(given), [to], name=to, **attributes))
        return to

    def feature_ids(self, features: int, *, numbers: int) -> str:
        """The feature numbers, and behind them that of a row of zeros; of a model with so many numbers."""
        if numbers * 4 > LARGEST_BYTES:
            raise UsageError(
                f"the model has {numbers * 4 / (1 << 30):.1f} GB of weights, and an ONNX file holds 2 GB; "
                "convert to safetensors, or train with fewer --buckets or a higher --min-count"
            )
        ids = self.input("ids", "INT64")
        neutral = self.constant("neutral", np.array([features], np.int64))
        return self.node("Concat", ids, neutral, to="all_ids", axis=0)

    def feature_table(self, name: str, array: npt.NDArray[Any]) -> str:
        """A row for each feature, and one of zeros behind."""
        out = np.zeros((len(array) + 1, *array.shape[1:]), np.float32)
        out[:-1] = array
        return self.constant(name, out)

    def calibrated(self, scores: str, columns: int) -> str:
        """The scores as they become probabilities; two labels may have one column for both."""
        if self._scale is None:
            return scores
        scale = self.constant("calibration", self._scale[:columns])
        return self.node("Mul", scores, scale, to="calibrated")

    def probabilities(self, scores: str, loss: str) -> None:
        scores = self.calibrated(scores, self.labels)
        if loss in ("softmax", "squared-hinge"):
            self.node("Softmax", scores, to=self.outcome, axis=0)
        else:
            self.node("Sigmoid", scores, to=self.outcome)

    def _follow_curve(self, said: Sequence[float], right: Sequence[float]) -> None:
        """The likeliest label gets what the curve says, the others share the rest as they did before.

        It never gets less than the second would then have.
        """
        begins, values, before = np.array(said), np.array(right), self.outcome
        widths, slopes = np.diff(begins), np.diff(values) / np.diff(begins)
        for name, array in (
            ("curve_begins", begins[:-1]),
            ("curve_widths", widths),
            ("curve_slopes", slopes),
            ("curve_first", values[:1]),
            ("curve_none", np.zeros(1)),
            ("curve_one", np.ones(1)),
            ("curve_least", np.full(1, np.finfo(np.float32).tiny)),
        ):
            self.constant(name, array.astype(np.float32))
        self.constant("curve_labels", np.arange(self.labels))
        place = self.node("ArgMax", before, to="curve_place", axis=0, keepdims=1)
        is_best = self.node("Equal", "curve_labels", place, to="curve_is_best")
        best = self.node("Where", is_best, "curve_one", "curve_none", to="curve_best")
        others = self.node("Where", is_best, "curve_none", before, to="curve_others")
        said_of_best = self.node("ReduceMax", before, to="curve_said", keepdims=1)
        inside = self.node("Sub", said_of_best, "curve_begins", to="curve_behind")
        inside = self.node("Max", inside, "curve_none", to="curve_above")
        inside = self.node("Min", inside, "curve_widths", to="curve_inside")
        rises = self.node(
            "ReduceSum", self.node("Mul", inside, "curve_slopes", to="curve_rises"), to="curve_rise"
        )
        read = self.node("Add", rises, "curve_first", to="curve_read")
        rest = self.node("ReduceSum", others, to="curve_sum", keepdims=1)
        rest = self.node("Max", rest, "curve_least", to="curve_rest")
        second = self.node("ReduceMax", others, to="curve_second", keepdims=1)
        least = self.node("Div", second, self.node("Add", rest, second, to="curve_both"), to="curve_tie")
        likely = self.node("Max", read, least, to="curve_likely")
        left = self.node("Sub", "curve_one", likely, to="curve_left")
        shares = self.node("Mul", self.node("Div", others, rest, to="curve_parts"), left, to="curve_shares")
        self.node("Add", self.node("Mul", best, likely, to="curve_top"), shares, to="probabilities")

    def proto(self) -> Any:
        if self._curve is not None:
            self._follow_curve(*self._curve)
        outputs = [self._value("probabilities", "FLOAT", self.labels)]
        return self._onnx.helper.make_graph(self.nodes, "manyhands", self.inputs, outputs, self.constants)

    def _value(self, name: str, kind: str, size: str | int) -> Any:
        return self._onnx.helper.make_tensor_value_info(name, getattr(self._onnx.TensorProto, kind), [size])


def _import_onnx() -> Any:
    try:
        import onnx  # noqa: PLC0415
    except ImportError:
        raise missing_extra("onnx", "onnx") from None
    return onnx


def serialize_graph(graph: OnnxGraph, model: str, facts: dict[str, Any]) -> bytes:
    """The file, checked; ``facts`` make sense of its numbers and are its metadata."""
    onnx = _import_onnx()
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    proto = onnx.helper.make_model(
        graph.proto(),
        producer_name="manyhands",
        producer_version=version("manyhands"),
        opset_imports=opsets,
        ir_version=IR_VERSION,
    )
    metadata = {name: json.dumps(value, ensure_ascii=False) for name, value in facts.items()}
    onnx.helper.set_model_props(proto, {"model": model, **metadata})
    onnx.checker.check_model(proto, full_check=True)
    data: bytes = proto.SerializeToString()
    return data
