"""The encoder on ONNX Runtime, which serves on a CPU without torch.

The graph is built from the checkpoint's own weights while it loads, which takes half a second, so
there is no second file that has to agree with the first. Rows pass one at a time and at their own
length: nothing is padded, and no score depends on its neighbours. It computes in fp32; int8 takes
half the time, but moved some confidences too far (`ablations.md`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from calibrator.checkpoints.checkpoint import EncoderConfig
from calibrator.features.weights import SCALE, Array, Floats
from calibrator.text.layout import TokenRow

OPSET, IR_VERSION = 20, 10
RUNTIMES_OWN = "com.microsoft"  # domain of the operators that ONNX Runtime adds to the standard
LAYER_NORM_EPSILON = 1e-12  # as in BERT


class OnnxEncoder:
    """An encoder from token rows to features (B, 2 * hidden) and logits (B, 2).

    `threads` bounds the CPU threads of one row; None is one for each core.
    """

    def __init__(
        self, config: EncoderConfig, weights: Mapping[str, Array], threads: int | None = None
    ) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or os.cpu_count() or 1
        options.inter_op_num_threads = 1
        # a spinning thread takes its core from the threads that answer requests
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            encoder_graph(config, weights).SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
        )

    def __call__(self, rows: Sequence[TokenRow]) -> tuple[Floats, Floats]:
        found = [self._session.run(["features", "logits"], _inputs(row)) for row in rows]
        features, logits = zip(*found, strict=True)
        return np.concatenate(features), np.concatenate(logits)


def _inputs(row: TokenRow) -> dict[str, NDArray[np.int64]]:
    segments = np.zeros(len(row.ids), np.int64)
    segments[row.segment_b :] = 1
    return {"ids": np.array(row.ids, np.int64), "segments": segments}


def encoder_graph(config: EncoderConfig, weights: Mapping[str, Array]) -> onnx.ModelProto:
    """Build BERT and the head for one row.

    Inputs are ids and segments (T,). Outputs are features (1, 2 * hidden) and logits (1, 2).
    """
    graph = _Graph(weights)
    states = graph.embedded()
    for number in range(config.layers):
        states = graph.layer(states, f"encoder.encoder.layer.{number}", config.heads)
    cls = graph.add("Slice", states, graph.constant([0]), graph.constant([1]))
    mean = graph.add("ReduceMean", states, graph.constant([0]), keepdims=1)
    graph.add("Concat", cls, mean, output="features", axis=1)
    graph.linear(graph.add("Gelu", graph.linear("features", "head.0")), "head.3", output="logits")
    ids, segments = (
        helper.make_tensor_value_info(name, TensorProto.INT64, ["tokens"])
        for name in ("ids", "segments")
    )
    features, logits = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size])
        for name, size in (("features", 2 * config.hidden), ("logits", 2))
    )
    return helper.make_model(
        helper.make_graph(
            graph.nodes, "encoder", [ids, segments], [features, logits], graph.constants
        ),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(RUNTIMES_OWN, 1)],
        ir_version=IR_VERSION,
    )


class _Graph:
    """The nodes and constants so far.

    States are (T, hidden); every method returns a value's name.
    """

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"value {len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, value: Array | list[int]) -> str:
        name = f"constant {len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def weight(self, name: str) -> str:
        return self.constant(self.weights[name])

    def embedded(self) -> str:
        """Add the sum of word, segment and position embeddings, normalised."""
        words, segments = self.rows("word", "ids"), self.rows("token_type", "segments")
        every = self.weight("encoder.embeddings.position_embeddings.weight")
        positions = self.add("Slice", every, self.constant([0]), self.add("Shape", "ids"))
        found = self.add("Add", self.add("Add", words, segments), positions)
        return self.normed(found, "encoder.embeddings.LayerNorm")

    def rows(self, table: str, ids: str) -> str:
        """Look up rows of a table of embeddings; rows of a packed table are cast to fp32."""
        name = f"encoder.embeddings.{table}_embeddings.weight"
        found = self.add("Gather", self.weight(name), ids)
        if name + SCALE not in self.weights:
            return found
        found = self.add("Cast", found, to=TensorProto.FLOAT)
        scales = self.constant(self.weights[name + SCALE][:, None])
        return self.add("Mul", found, self.add("Gather", scales, ids))

    def layer(self, states: str, name: str, heads: int) -> str:
        attended = self.attention(states, f"{name}.attention.self", heads)
        given = self.linear(attended, f"{name}.attention.output.dense")
        states = self.normed(self.add("Add", given, states), f"{name}.attention.output.LayerNorm")
        inner = self.add("Gelu", self.linear(states, f"{name}.intermediate.dense"))
        given = self.linear(inner, f"{name}.output.dense")
        return self.normed(self.add("Add", given, states), f"{name}.output.LayerNorm")

    def attention(self, states: str, name: str, heads: int) -> str:
        batch = self.constant([0])  # the operator needs a batch axis
        asked = [
            self.add("Unsqueeze", self.linear(states, f"{name}.{part}"), batch)
            for part in ("query", "key", "value")
        ]
        found = self.add("MultiHeadAttention", *asked, domain=RUNTIMES_OWN, num_heads=heads)
        return self.add("Squeeze", found, batch)

    def linear(self, x: str, name: str, output: str = "") -> str:
        weight, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.add("Gemm", x, weight, bias, output=output, transB=1)

    def normed(self, x: str, name: str) -> str:
        weight, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.add("LayerNormalization", x, weight, bias, epsilon=LAYER_NORM_EPSILON)
