"""Open ONNX models in onnxruntime, on the CPU or a GPU."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rejoinder.models.seed import seed
from rejoinder.pipeline.errors import ModelError

log = logging.getLogger(__name__)

TENSORRT = "TensorrtExecutionProvider"
"""onnxruntime's name for TensorRT."""
CUDA = "CUDAExecutionProvider"
"""onnxruntime's name for CUDA."""
CPU = "CPUExecutionProvider"
"""onnxruntime's name for the CPU."""


def open_session(
    path: Path, threads: int, also: str = "", cuda: bool = False, graph: bytes | None = None
) -> Any:
    """Open an onnxruntime session whose idle threads sleep instead of spinning. Raises ModelError.

    path: the model file.
    threads: threads of the session.
    also: name of an inner tensor to add to the model's outputs.
    cuda: run on a GPU, if this onnxruntime supports one.
    graph: a serialised model to open instead of the file.
    """
    import onnxruntime

    if (number := seed()) is not None:
        onnxruntime.set_seed(number)  # of the operators that draw numbers, in sessions opened from now on
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    providers: list[Any] = [CPU]
    if cuda:
        if hasattr(onnxruntime, "preload_dlls"):
            onnxruntime.preload_dlls()  # finds CUDA libraries in Python packages, unlike the system's loader
        providers = on_gpu(onnxruntime.get_available_providers(), path.parent)
    try:
        model = graph or (_with_output(path, also) if also else str(path))
        return onnxruntime.InferenceSession(model, options, providers=providers)
    except Exception as error:
        raise ModelError("onnxruntime", f"cannot load {path}: {error}") from error


def on_gpu(available: Iterable[str], folder: Path) -> list[Any]:
    """Return the execution providers in order of preference: TensorRT, CUDA, the CPU for the rest.

    available: names of the providers in this onnxruntime. folder: where TensorRT caches its compiled engines;
    compiling takes minutes.
    """
    here = set(available)
    cache = {"trt_engine_cache_enable": True, "trt_engine_cache_path": str(folder / "tensorrt")}
    providers: list[Any] = [(TENSORRT, cache)] if TENSORRT in here else []
    providers += [CUDA] if CUDA in here else []
    if not providers:
        log.warning("this onnxruntime has no GPU support and runs on the CPU; install onnxruntime-gpu")
    return [*providers, CPU]


def _with_output(path: Path, name: str) -> bytes:
    """Return a serialised model with an inner tensor as a further, last output.

    Protocol buffers merge messages that follow each other. So the addition is appended, and the model, which
    may have 100 MB, is not parsed.
    """
    from onnx import GraphProto, ModelProto, ValueInfoProto

    addition = ModelProto(graph=GraphProto(output=[ValueInfoProto(name=name)]))
    return path.read_bytes() + bytes(addition.SerializeToString())
