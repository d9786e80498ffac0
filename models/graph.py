"""Cut a voice's ONNX graph in two, so that its decoder can start before the sentence is over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

DECODER = "/dec/"
"""What VITS exports call the nodes of their decoder."""


def halves(path: Path) -> tuple[Path, Path]:
    """Return the files of the graph before its decoder, and of the decoder; made once, in a folder beside it.

    Raises ImportError without the onnx package, ValueError for a graph that hangs together by more than one
    tensor there (a voice of several speakers does), and OSError where the files cannot be written.
    """
    folder = path.with_suffix(".halves")
    front, back = folder / "front.onnx", folder / "decoder.onnx"
    if not all(half.exists() and half.stat().st_mtime >= path.stat().st_mtime for half in (front, back)):
        import onnx
        from onnx.utils import Extractor

        model = onnx.load(str(path))
        tensor = seam(model.graph)
        extractor = Extractor(model)
        folder.mkdir(exist_ok=True)
        _save(extractor.extract_model([each.name for each in model.graph.input], [tensor]), front)
        _save(extractor.extract_model([tensor], [model.graph.output[0].name]), back)
    return front, back


def seam(graph: Any) -> str:
    """Return the one tensor that is computed before the decoder and used by it. Raises ValueError."""
    made_by = {output: node for node in graph.node for output in node.output}
    entering: set[str] = {
        name
        for node in graph.node
        if DECODER in node.name
        for name in node.input
        if name in made_by and DECODER not in made_by[name].name and made_by[name].op_type != "Constant"
    }
    given: set[str] = {each.name for each in graph.input}
    if len(entering) != 1 or any(given & set(node.input) for node in graph.node if DECODER in node.name):
        raise ValueError(f"the decoder has {len(entering)} tensors to start from, not one")
    return entering.pop()


def _save(model: Any, path: Path) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # another process may be making the same file
    part.write_bytes(model.SerializeToString())
    part.replace(path)
