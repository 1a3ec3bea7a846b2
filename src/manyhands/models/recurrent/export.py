"""A recurrent network in ONNX: from the numbers of a text's words to the probability of each label.

A text without a known word is read as one word of zeros, because runtimes refuse a sequence of no steps;
what comes of it is multiplied by 0.
"""

import numpy as np

from manyhands.formats.onnx import OnnxGraph
from manyhands.kernels.simd import Floats
from manyhands.models.model import Arrays
from manyhands.models.recurrent.network import Network, Shape

LSTM_GATES, GRU_GATES = [0, 2, 1, 3], [1, 0, 2]  # the places of ours in ONNX's order


def add_network(graph: OnnxGraph, network: Network, pool: str, loss: str) -> None:
    shape, table = network.shape, network.embedding
    numbers = table.size + sum(array.size for array in network.rest.values())
    ids = graph.feature_ids(len(table), numbers=numbers)
    graph.feature_table("embedding", table)
    one = graph.constant("one", np.ones(1, np.int64))
    count = graph.node("Shape", "ids", to="count")
    steps = graph.node("Max", count, one, to="steps")
    first = graph.constant("first", np.zeros(1, np.int64))
    read = graph.node("Slice", ids, first, steps, to="read")
    inputs = graph.node("Unsqueeze", graph.node("Gather", "embedding", read, to="rows"), one, to="inputs")
    for level in range(len(shape.widths) - 1):
        states = _add_layer(graph, network, level, inputs)
        if level + 2 < len(shape.widths):
            size = graph.constant(f"size{level}", np.array([0, 1, shape.below(level + 1)]))
            inputs = graph.node("Reshape", states, size, to=f"inputs{level + 1}")
    pooled = _add_pooling(graph, shape, pool, states)
    known = graph.node("CastLike", graph.node("Min", count, one, to="any"), pooled, to="known")
    pooled = graph.node("Mul", pooled, known, to="state")
    graph.constant("output", network.rest["output"])
    bias = graph.constant("output_bias", network.rest["output_bias"])
    product = graph.node("MatMul", "output", pooled, to="product")
    graph.probabilities(graph.node("Add", product, bias, to="scores"), loss)


def _add_layer(graph: OnnxGraph, network: Network, level: int, inputs: str) -> str:
    """The states after every step: (steps, directions, width)."""
    shape = network.shape
    gru = shape.cell == "gru"
    layers = [network.layer(level, way) for way in shape.directions]
    order = GRU_GATES if gru else LSTM_GATES
    given = [
        graph.constant(f"layer{level}.{part}", np.stack([_in_order(layer[part], order) for layer in layers]))
        for part in ("inputs", "recurrent")
    ]
    biases = np.stack([_biases(layer, order) for layer in layers])
    given.append(graph.constant(f"layer{level}.bias", biases))
    more = {"linear_before_reset": 1} if gru else {}
    out = graph.node(
        "GRU" if gru else "LSTM",
        inputs,
        *given,
        to=f"layer{level}",
        hidden_size=shape.widths[level + 1],
        direction="bidirectional" if shape.bidirectional else "forward",
        **more,
    )
    batch = graph.constant(f"batch{level}", np.array([2]))
    return graph.node("Squeeze", out, batch, to=f"states{level}")


def _in_order(rows: Floats, order: list[int]) -> Floats:
    return rows.reshape(len(order), -1, *rows.shape[1:])[order].reshape(rows.shape)


def _biases(layer: Arrays, order: list[int]) -> Floats:
    """Those of the inputs, then those of the state, of which only a GRU has some: for its candidate."""
    of_state = np.zeros_like(layer["bias"])
    if "state_bias" in layer:
        of_state[-len(layer["state_bias"]) :] = layer["state_bias"]
    return np.concatenate([_in_order(layer["bias"], order), of_state])


def _add_pooling(graph: OnnxGraph, shape: Shape, pool: str, states: str) -> str:
    if pool == "last":
        ways = []
        for way, step in enumerate((-1, 0)[: len(shape.directions)]):  # back, that is at the first word
            at = graph.constant(f"step{way}", np.array([step]))
            end = graph.node("Gather", states, at, to=f"end{way}", axis=0)
            mine = graph.constant(f"way{way}", np.array([way]))
            ways.append(graph.node("Gather", end, mine, to=f"last{way}", axis=1))
        found = graph.node("Concat", *ways, to="last", axis=1)
    else:
        operator = "ReduceMax" if pool == "max" else "ReduceMean"
        found = graph.node(operator, states, to="reduced", axes=[0], keepdims=0)
    return graph.node("Reshape", found, graph.constant("flat", np.array([-1])), to="pooled")
