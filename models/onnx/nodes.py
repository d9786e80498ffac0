"""An ONNX graph that grows node by node, for the graphs that are made anew as they are loaded."""

from __future__ import annotations

from typing import Any

import numpy as np

MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""


class Nodes:
    """The nodes of a graph and its constants; tensors are told apart by name."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        """Add a constant and return its name."""
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        given = np.ascontiguousarray(value)
        self.constants.append(numpy_helper.from_array(given, name))
        return name

    def add(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node with one output, and return the output's name."""
        from onnx import helper

        name = name or f"tensor_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def cut(self, what: str, axis: int, first: int, last: int, step: int = 1) -> str:
        """Take a part of a tensor."""
        places = (self.constant([value]) for value in (first, last, axis, step))
        return self.add("Slice", what, *places)
