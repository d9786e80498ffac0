"""Cut a voice's ONNX graph in two, so that its decoder can start before the sentence is over."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from rejoinder.models.window import add_window

DECODER = "/dec/"
"""What VITS exports call the nodes of their decoder."""


def halves(path: Path) -> tuple[Path, Path]:
    """Return the files of the graph before its decoder, and of the decoder, to which a window is added
    (``add_window``); made once, in a folder beside it that is named after the voice's size and time: another
    voice of the same name gets its own.

    Raises ImportError without the onnx package, ValueError for a graph that hangs together by more than one
    tensor there (a voice of several speakers does) or has another decoder, and OSError where the files cannot
    be written.
    """
    stat = path.stat()
    folder = path.with_suffix(f".{stat.st_size:x}-{stat.st_mtime_ns:x}.halves")
    front, back = folder / "front.onnx", folder / "window.onnx"
    if not (front.exists() and back.exists()):
        import onnx
        from onnx.utils import Extractor

        model = onnx.load(str(path))
        tensor = seam(model.graph)
        extractor = Extractor(model)
        folder.mkdir(exist_ok=True)
        _save(extractor.extract_model([each.name for each in model.graph.input], [tensor]), front)
        decoder = extractor.extract_model([tensor], [model.graph.output[0].name])
        add_window(decoder.graph)
        _save(decoder, back)
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
    # Another process may be making the same file, and none may see half of it.
    with NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
        try:
            part.write(model.SerializeToString())
        except BaseException:
            os.unlink(part.name)
            raise
    os.chmod(part.name, 0o644)
    os.replace(part.name, path)
