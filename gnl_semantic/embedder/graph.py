"""Build the ONNX graph of the built-in model from its 4-bit weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnl_semantic.embedder.weights import BLOCK, Weights

if TYPE_CHECKING:
    from onnx import ModelProto

_MICROSOFT = "com.microsoft"
_OPSET = 21
_IR = 10


def build_graph(weights: Weights, *, accuracy_level: int) -> ModelProto:
    """Return the model as one graph: token ids in, unit vectors out.

    Inputs `input_ids` and `attention_mask`, int64 [batch, tokens]; output `sentence_embedding`, float32
    [batch, hidden]: mean of all tokens, length 1.

    Args:
        weights: Contents of the weights' file.
        accuracy_level: How the 4-bit matrices are multiplied: 1 computes in float32 and reproduces the weights to
            1.5e-7; 4 rounds each block of activations to int8, which is faster and moves vectors by up to 4e-3.
    """
    from onnx import TensorProto, helper  # noqa: PLC0415

    graph = _Graph(weights, accuracy_level)
    graph.embed_tokens()
    for layer in range(weights.layers):
        graph.add_layer(f"l{layer}")
    graph.pool()
    int64, batch = TensorProto.INT64, ["batch", "tokens"]
    body = helper.make_graph(
        graph.nodes,
        "multilingual-e5-small",
        [helper.make_tensor_value_info(name, int64, batch) for name in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", weights.hidden])],
        graph.constants,
    )
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)]
    return helper.make_model(body, opset_imports=opsets, ir_version=_IR, producer_name="gnl-semantic")


class _Graph:
    """Nodes and constants in the making; `state` names the hidden states after the last node."""

    def __init__(self, weights: Weights, accuracy_level: int) -> None:
        self.weights = weights
        self.accuracy_level = accuracy_level
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.state = ""

    def node(
        self, operator: str, inputs: list[str], output: str | list[str], domain: str = "", **attributes: Any
    ) -> str:
        from onnx import helper  # noqa: PLC0415

        outputs = [output] if isinstance(output, str) else output
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=outputs[0], domain=domain, **attributes))
        return outputs[0]

    def constant(self, name: str, value: NDArray[Any]) -> str:
        from onnx import numpy_helper  # noqa: PLC0415

        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def floats(self, name: str) -> str:
        return self.constant(name, self.weights.floats[name])

    def linear(self, operand: str, output: str, *matrices: str, bias: bool = True) -> str:
        """Multiply by 4-bit matrices, one below the other, and add their biases."""
        quantised, floats = self.weights.quantised, self.weights.floats
        rows = sum(len(floats[f"{name}.b"]) for name in matrices)
        blocks = np.concatenate([quantised[f"{name}.w"] for name in matrices]).reshape(rows, -1)
        inputs = [
            operand,
            self.constant(f"{output}.weight", _interleave(blocks["nibbles"])),
            self.constant(f"{output}.scale", blocks["scale"].astype(np.float32).reshape(-1)),
        ]
        if bias:
            # Inputs 4 and 5 are zero points (8 unless given, which is what the weights mean) and group indices.
            inputs += [
                "",
                "",
                self.constant(f"{output}.bias", np.concatenate([floats[f"{name}.b"] for name in matrices])),
            ]
        return self.node(
            "MatMulNBits",
            inputs,
            output,
            _MICROSOFT,
            K=blocks.shape[1] * BLOCK,
            N=rows,
            bits=4,
            block_size=BLOCK,
            accuracy_level=self.accuracy_level,
        )

    def embed_tokens(self) -> None:
        """Look tokens up in the 4-bit table, add positions, normalise.

        The table is read with standard operators only: the fused one loads in some releases of onnxruntime and not in
        others, and rounds its result to float16.
        """
        hidden, floats = self.weights.hidden, self.weights.floats
        table = self.weights.quantised["emb.word"].reshape(-1, hidden // BLOCK)
        self.constant("word.nibbles", table["nibbles"])
        self.constant("word.scale", table["scale"][..., np.newaxis])
        # All tokens are of type 0, so its vector can stand in the positions.
        positions = floats["emb.pos"].reshape(-1, hidden) + floats["emb.type"][:hidden]
        self.constant("positions", positions)
        for name, number in (("zero", 0), ("one", 1)):
            self.constant(name, np.array([number], np.int64))

        self.node("Gather", ["word.nibbles", "input_ids"], "word.packed")
        self.node("BitwiseAnd", ["word.packed", self.constant("low_half", np.array(15, np.uint8))], "word.low")
        self.node(
            "BitShift", ["word.packed", self.constant("half", np.array(4, np.uint8))], "word.high", direction="RIGHT"
        )
        self.node("Concat", ["word.low", "word.high"], "word.unsigned", axis=-1)
        self.node("Cast", ["word.unsigned"], "word.float", to=1)
        self.node("Sub", ["word.float", self.constant("middle", np.array(8, np.float32))], "word.signed")
        self.node("Gather", ["word.scale", "input_ids"], "word.half_scale")
        self.node("Cast", ["word.half_scale"], "word.float_scale", to=1)
        self.node("Mul", ["word.signed", "word.float_scale"], "word.blocks")
        self.node("Reshape", ["word.blocks", self.constant("flat", np.array([0, 0, hidden], np.int64))], "word")

        self.node("Shape", ["input_ids"], "length", start=1, end=2)
        self.node("Slice", ["positions", "zero", "length", "zero"], "position")
        self.node("Add", ["word", "position"], "embedded")
        norm = ["embedded", self.floats("emb.ln.w"), self.floats("emb.ln.b")]
        self.state = self.node("LayerNormalization", norm, "emb", epsilon=self.weights.epsilon, axis=-1)
        self.node("Cast", ["attention_mask"], "mask", to=6)

    def add_layer(self, name: str) -> None:
        """Attention and feed-forward, each added to its input and normalised afterwards."""
        hidden = self.weights.hidden
        self.linear(self.state, f"{name}.qkv", f"{name}.q", f"{name}.k", f"{name}.v")
        heads = [f"{name}.{part}" for part in ("query", "key", "value")]
        self.node("Split", [f"{name}.qkv", self._thirds(hidden)], heads, axis=-1)
        self.node(
            "MultiHeadAttention",
            [*heads, "", "mask"],
            f"{name}.attended",
            _MICROSOFT,
            num_heads=self.weights.heads,
        )
        self.linear(f"{name}.attended", f"{name}.ao", f"{name}.ao", bias=False)
        self._add_and_norm(f"{name}.ao", f"{name}.aln")
        self.linear(self.state, f"{name}.fi", f"{name}.fi", bias=False)
        self.node("BiasGelu", [f"{name}.fi", self.floats(f"{name}.fi.b")], f"{name}.gelu", _MICROSOFT)
        self.linear(f"{name}.gelu", f"{name}.fo", f"{name}.fo", bias=False)
        self._add_and_norm(f"{name}.fo", f"{name}.oln")

    def _thirds(self, hidden: int) -> str:
        name = "thirds"
        if all(constant.name != name for constant in self.constants):
            self.constant(name, np.full(3, hidden, np.int64))
        return name

    def _add_and_norm(self, operand: str, norm: str) -> None:
        inputs = [self.state, operand, self.floats(f"{norm}.w"), self.floats(f"{norm}.b"), self.floats(f"{operand}.b")]
        self.state = self.node("SkipLayerNormalization", inputs, f"{norm}", _MICROSOFT, epsilon=self.weights.epsilon)

    def pool(self) -> None:
        """Add up the tokens that are there and scale to length 1; the division by their number cancels."""
        self.node("Cast", ["attention_mask"], "weight", to=1)
        self.node("Unsqueeze", ["weight", "one"], "weight_row")
        self.node("MatMul", ["weight_row", self.state], "sum_row")
        self.node("Squeeze", ["sum_row", "one"], "sum")
        self.node("LpNormalization", ["sum"], "sentence_embedding", axis=-1, p=2)


def _interleave(nibbles: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Turn byte j = weights (j, j + 16) of a block into byte j = weights (2j, 2j + 1), as MatMulNBits reads them."""
    weights = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1)
    packed: NDArray[np.uint8] = weights[..., 0::2] | (weights[..., 1::2] << 4)
    return packed
