"""Let a voice's decoder make a window of its samples, with little work for what lies around it.

A decoder (HiFi-GAN, Kong et al. 2020) stretches frames to samples in steps. What a sample sees of other
frames it sees nearly all before the second step, and most of the work comes behind that. From there on only
so much context is kept as what follows can see, and no sample changes.
"""

from __future__ import annotations

from typing import Any

from rejoinder.models.graph_nodes import Nodes

START, STOP = "start", "stop"
"""Inputs of a decoder with a window: the first frame of which there is to be audio, and the one behind."""
STRETCH = "ConvTranspose"


def add_window(graph: Any) -> None:
    """Give a decoder the inputs ``START`` and ``STOP``, each of one int64. Raises ValueError."""
    from onnx import TensorProto, helper

    if sum(node.op_type == STRETCH for node in graph.node) < 2:
        raise ValueError("the decoder does not stretch its frames in steps")
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
        if node.op_type == STRETCH:
            if rate > 1:
                node.input[0], origin = windowed(node.input[0])
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
    """Return how far to either side of itself, in values of that tensor, a sample sees into every tensor."""
    seen = {graph.output[0].name: 0}
    for node in reversed(graph.node):
        width = seen.get(node.output[0], 0)
        if node.op_type == "Conv":
            width += ints(node, "dilations") * (ints(node, "kernel_shape") // 2)
        elif node.op_type == STRETCH:
            width = -(-(width + ints(node, "kernel_shape") // 2) // ints(node, "strides"))
        for name in node.input:
            seen[name] = max(seen.get(name, 0), width)
    return seen


def ints(node: Any, name: str) -> int:
    """Return an attribute of a convolution in one dimension. Raises ValueError."""
    ((value,),) = [each.ints for each in node.attribute if each.name == name]
    return int(value)
