"""Open ONNX models the same way everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rejoinder.pipeline.errors import ModelError


def open_session(path: Path, threads: int, also: str = "") -> Any:
    """Open an onnxruntime session on the CPU with idle threads that sleep. Raises ModelError.

    also: the name of a tensor inside the model that is to be an output besides its own.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        model = path.read_bytes() + _output(also) if also else str(path)
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelError("onnxruntime", f"cannot load {path}: {error}") from error


def _output(name: str) -> bytes:
    """Return what makes a tensor an output when it is appended to an ONNX file.

    Protocol buffers that stand one after the other are merged: ModelProto.graph (field 7) gets another
    GraphProto.output (12), a ValueInfoProto with a name (1). It saves the onnx package, an extra of Piper's.
    """
    message = name.encode()
    for field in (1, 12, 7):
        assert len(message) < 128, "a length of one byte"
        message = bytes((field << 3 | 2, len(message))) + message
    return message
