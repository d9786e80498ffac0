"""Let a part of a voice make a window of its output, with little work for what lies around it.

How far each frame of a flow and each sample of a decoder sees is known from the graph. Where a step of it
begins, only so much context is kept as what follows can see, and no value changes.
"""

from __future__ import annotations

from typing import Any

from rejoinder.models.onnx.nodes import Nodes

START, STOP = "start", "stop"
"""Inputs of a part with a window: the first frame of which there is to be output, and the one behind."""
STRETCH = "ConvTranspose"
"""A decoder (HiFi-GAN, Kong et al. 2020) stretches frames to samples in steps; most work comes behind two."""
COUPLING = "Split"
"""A flow (VITS, Kim et al. 2021) bends one half of the channels by the other, then the other way round."""
IN_PLACE = frozenset(
    """Add Concat Constant ConstantOfShape Div Exp LeakyRelu Mul Neg Shape Sigmoid Slice Split Squeeze Sub
    Tanh Unsqueeze""".split()
)
"""Nodes of which an output sees no frame but its own. (Slices and splits are of channels.)"""


def add_window(graph: Any, step: str) -> None:
    """Give a part the inputs ``START`` and ``STOP``, each of one int64.

    step: the kind of node with which a step begins, ``STRETCH`` or ``COUPLING``. Raises ValueError where the
    part has not two of them.
    """
    from onnx import TensorProto, helper

    if sum(node.op_type == step for node in graph.node) < 2:
        raise ValueError(f"there are no steps ({step}) in this part")
    seen, built, rate = reach(graph), Nodes(), 1
    zero = origin = built.constant([0])

    def windowed(tensor: str, name: str = "") -> tuple[str, str]:
        """Cut the context off that nobody sees, and return the rest and where it begins."""
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
    """Return how far to either side of itself, in values of that tensor, an output sees into every tensor.

    Raises ValueError for a node of which that is not known.
    """
    seen = {graph.output[0].name: 0}
    for node in reversed(graph.node):
        width = max(seen.get(name, 0) for name in node.output)
        if node.op_type == "Conv":
            left, right = _all(node, "pads")
            width += ints(node, "dilations") * (ints(node, "kernel_shape") // 2)
            if left != right:
                raise ValueError("a convolution sees further to one side than to the other")
        elif node.op_type == STRETCH:
            width = -(-(width + ints(node, "kernel_shape") // 2) // ints(node, "strides"))
        elif node.op_type not in IN_PLACE:
            raise ValueError(f"it is not known how far {node.op_type} sees")
        for name in node.input:
            seen[name] = max(seen.get(name, 0), width)
    return seen


def ints(node: Any, name: str) -> int:
    """Return an attribute of a convolution in one dimension. Raises ValueError."""
    (value,) = _all(node, name)
    return value


def _all(node: Any, name: str) -> list[int]:
    (found,) = [each.ints for each in node.attribute if each.name == name]
    return [int(value) for value in found]
