"""Cut a voice's ONNX graph into three parts, so that audio is ready before the sentence is complete."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

from rejoinder.models.tts.window import COUPLING, STRETCH, add_window

FORM = 1
"""Version of the files. Increase it whenever this module or ``window.py`` writes other files."""
FLOW = "/flow/"
"""Part of the names of the flow's nodes in VITS exports."""
DECODER = "/dec/"
"""Part of the names of the decoder's nodes in VITS exports."""


class Parts(NamedTuple):
    """The files of a cut graph: the part before the flow, then flow and decoder (``window.py``)."""

    front: Path
    flow: Path
    decoder: Path


class Seams(NamedTuple):
    """The tensors at which a graph is cut.

    latents: the frames before the flow. mask: which of them are in use. flowed: the frames after the flow.
    """

    latents: str
    mask: str
    flowed: str


def parts_folder(path: Path) -> Path:
    """Return the folder of a voice's parts, which may not exist yet."""
    stat = path.stat()
    return path.with_suffix(f".{stat.st_size:x}-{stat.st_mtime_ns:x}.parts{FORM}")


def parts(path: Path) -> Parts:
    """Return the three parts of a voice's graph. The first call writes them to a folder beside the voice.

    The folder's name has the voice's size and modification time, so another voice of the same name gets a
    folder of its own. Raises ValueError for a graph of another structure (such as a voice with several
    speakers), and OSError if the files cannot be written.
    """
    folder = parts_folder(path)
    made = Parts(folder / "front.onnx", folder / "flow.onnx", folder / "decoder.onnx")
    if not all(part.exists() for part in made):
        import onnx
        from onnx.utils import Extractor

        model = onnx.load(str(path))
        latents, mask, flowed = seams(model.graph)
        extractor = Extractor(model)
        folder.mkdir(exist_ok=True)
        _save(extractor.extract_model([each.name for each in model.graph.input], [latents]), made.front)
        flow = extractor.extract_model([latents, mask], [flowed])
        _without_mask(flow.graph, mask)
        add_window(flow.graph, COUPLING)
        _save(flow, made.flow)
        decoder = extractor.extract_model([flowed], [model.graph.output[0].name])
        add_window(decoder.graph, STRETCH)
        _save(decoder, made.decoder)
    return made


def seams(graph: Any) -> Seams:
    """Find where a VITS graph can be cut. Raises ValueError."""
    made_by = {output: node for node in graph.node for output in node.output}
    given = {each.name for each in graph.input}

    def entering(part: list[Any]) -> set[str]:
        within = {output for node in part for output in node.output}
        names = {name for node in part for name in node.input if name in made_by or name in given}
        return {name for name in names - within if name in given or made_by[name].op_type != "Constant"}

    into_decoder = entering([node for node in graph.node if DECODER in node.name])
    if len(into_decoder) != 1 or into_decoder <= given:
        raise ValueError(f"the decoder has {len(into_decoder)} inputs from other parts: expected 1")
    (flowed,) = into_decoder
    flow = _between(graph, flowed)
    latents = entering(flow)
    masks = latents & set(made_by[flowed].input)
    if len(latents) != 2 or len(masks) != 1 or latents & given:
        raise ValueError(f"the flow has {len(latents)} inputs: expected 2, the frames and their mask")
    (mask,), (frames,) = masks, latents - masks
    return Seams(frames, mask, flowed)


def _between(graph: Any, flowed: str) -> list[Any]:
    """Return the nodes from the flow's first to that of ``flowed``; not all of them have ``FLOW`` names."""
    behind: set[str] = set()
    for node in graph.node:
        if FLOW in node.name or behind.intersection(node.input):
            behind.update(node.output)
    needed = {flowed}
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
    used = behind & needed
    return [node for node in graph.node if used.intersection(node.output)]


def _without_mask(graph: Any, mask: str) -> None:
    """Replace the mask by a constant: with one sentence at a time, every frame is in use."""
    import numpy as np
    from onnx import numpy_helper

    (given,) = [each for each in graph.input if each.name == mask]
    graph.input.remove(given)
    graph.initializer.append(numpy_helper.from_array(np.ones((1, 1, 1), np.float32), mask))


def _save(model: Any, path: Path) -> None:
    # Another process may write or read the same file, so it is renamed into place when complete.
    with NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
        try:
            part.write(model.SerializeToString())
        except BaseException:
            os.unlink(part.name)
            raise
    os.chmod(part.name, 0o644)
    os.replace(part.name, path)
