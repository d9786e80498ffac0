"""Let a part of a voice compute a window of its output, with little work for the frames around it.

The receptive field of each frame of a flow and each sample of a decoder follows from the graph. At the start
of each step, only the context that later nodes can see is kept. No value changes.
"""

from __future__ import annotations

from typing import Any

from rejoinder.models.onnx.nodes import Nodes

START = "start"
"""Input of a part with a window: the first frame to compute output for."""
STOP = "stop"
"""Input of a part with a window: the frame after the last one to compute output for."""
STRETCH = "ConvTranspose"
"""The upsampling node of a decoder (HiFi-GAN, Kong et al. 2020). Most work follows the second one."""
COUPLING = "Split"
"""The first node of a flow's coupling layer (VITS, Kim et al. 2021), which transforms one half of the
channels depending on the other half."""
IN_PLACE = frozenset(
    """Add Concat Constant ConstantOfShape Div Exp LeakyRelu Mul Neg Shape Sigmoid Slice Split Squeeze Sub
    Tanh Unsqueeze""".split()
)
"""Nodes whose receptive field is one frame. (Slices and splits are along channels.)"""


def add_window(graph: Any, step: str) -> None:
    """Add the inputs ``START`` and ``STOP`` to a part, each int64 [1].

    step: the kind of node with which a step begins, ``STRETCH`` or ``COUPLING``. Raises ValueError if the
    part has fewer than two of them.
    """
    from onnx import TensorProto, helper

    if (steps := sum(node.op_type == step for node in graph.node)) < 2:
        raise ValueError(f"a part of the voice has {steps} nodes of type {step}: expected at least 2")
    seen, built, rate = reach(graph), Nodes(), 1
    zero = origin = built.constant([0])

    def windowed(tensor: str, name: str = "") -> tuple[str, str]:
        """Cut off the context that no later node sees; return the rest and its first frame."""
        context, scale = built.constant([seen[tensor]]), built.constant([rate])
        first = built.add("Max", built.add("Sub", built.add("Mul", START, scale), context), zero)
        last = built.add("Add", built.add("Mul", STOP, scale), context)
        bounds = [built.add("Sub", each, origin) for each in (first, last)]
        return built.add("Slice", tensor, *bounds, built.constant([-1]), name=name), first

    for node in graph.node:
        if node.op_type == step and (rate > 1 or step == COUPLING):
            node.input[0], origin = windowed(node.input[0])
        if node.op_type == STRETCH:
            stride = ints(node, "strides")
            origin = built.add("Mul", origin, built.constant([stride]))
            rate *= stride
        built.nodes.append(node)
    graph.output[0].name, _ = windowed(graph.output[0].name, "window")
    del graph.node[:]
    graph.node.extend(built.nodes)
    graph.initializer.extend(built.constants)
    graph.input.extend(helper.make_tensor_value_info(name, TensorProto.INT64, [1]) for name in (START, STOP))


def reach(graph: Any) -> dict[str, int]:
    """Return half the receptive field of an output value in every tensor, in values of that tensor.

    Raises ValueError for a node whose receptive field is unknown.
    """
    seen = {graph.output[0].name: 0}
    for node in reversed(graph.node):
        width = max(seen.get(name, 0) for name in node.output)
        if node.op_type == "Conv":
            left, right = _all(node, "pads")
            width += ints(node, "dilations") * (ints(node, "kernel_shape") // 2)
            if left != right:
                raise ValueError(
                    "a convolution has different padding on its two sides: expected equal padding"
                )
        elif node.op_type == STRETCH:
            width = -(-(width + ints(node, "kernel_shape") // 2) // ints(node, "strides"))
        elif node.op_type not in IN_PLACE:
            raise ValueError(f"the operator {node.op_type} is not supported: its receptive field is unknown")
        for name in node.input:
            seen[name] = max(seen.get(name, 0), width)
    return seen


def ints(node: Any, name: str) -> int:
    """Return an attribute of a one-dimensional convolution. Raises ValueError if it has more dimensions."""
    (value,) = _all(node, name)
    return value


def _all(node: Any, name: str) -> list[int]:
    (found,) = [each.ints for each in node.attribute if each.name == name]
    return [int(value) for value in found]
