"""Open ONNX models the same way everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rejoinder.pipeline.errors import ModelError


def open_session(path: Path, threads: int) -> Any:
    """Open an onnxruntime session on the CPU with idle threads that sleep. Raises ModelError."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelError("onnxruntime", f"cannot load {path}: {error}") from error
