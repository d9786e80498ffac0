"""Build ONNX graphs node by node, for models whose graph is rewritten when they are loaded."""

from __future__ import annotations

from typing import Any

import numpy as np

MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""


class Nodes:
    """The nodes and constants of a graph. Methods take and return the names of tensors."""

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
        """Add a node with one output, and return the name of the output."""
        from onnx import helper

        name = name or f"tensor_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def cut(self, what: str, axis: int, first: int, last: int, step: int = 1) -> str:
        """Add a slice of ``what`` along ``axis``, as in ``first:last:step``, and return its name."""
        places = (self.constant([value]) for value in (first, last, axis, step))
        return self.add("Slice", what, *places)
