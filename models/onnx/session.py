"""Open ONNX models in onnxruntime, on the CPU.

On an H100, CUDA took 1.9 s for each clause of a Piper voice, and 0.2 s with the fastest setting of cuDNN. One
thread of the CPU beside it needs less (docs/guides/gpu.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rejoinder.models.hints import VERIFY
from rejoinder.models.seed import seed
from rejoinder.pipeline.errors import ModelError

CPU = "CPUExecutionProvider"
"""onnxruntime's name for the CPU."""


def open_session(path: Path, threads: int, also: str = "", graph: bytes | None = None) -> Any:
    """Open an onnxruntime session whose idle threads sleep instead of spinning. Raises ModelError.

    path: the model file.
    threads: threads of the session.
    also: name of an inner tensor to add to the model's outputs.
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
    try:
        model = graph or (_with_output(path, also) if also else str(path))
        return onnxruntime.InferenceSession(model, options, providers=[CPU])
    except Exception as error:
        raise ModelError("onnxruntime", f"cannot load {path}: {error}; {VERIFY}") from error


def _with_output(path: Path, name: str) -> bytes:
    """Return a serialised model with an inner tensor as a further, last output.

    Protocol buffers merge messages that follow each other. So the addition is appended, and the model, which
    may have 100 MB, is not parsed.
    """
    from onnx import GraphProto, ModelProto, ValueInfoProto

    addition = ModelProto(graph=GraphProto(output=[ValueInfoProto(name=name)]))
    return path.read_bytes() + bytes(addition.SerializeToString())
