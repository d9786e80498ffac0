"""onnxruntime reports nothing to its vendor: it prepares no report where the package opens a model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from pathlib import Path
from onnx import TensorProto, helper
from rejoinder.models.onnx.session import open_session

ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "same", ends[:1], ends[1:])
opset = [helper.make_opsetid("", 17)]
model = helper.make_model(graph, ir_version=10, opset_imports=opset)
session = open_session(Path("none"), 1, graph=model.SerializeToString())
assert session.run(None, {"x": [1.0]})[0].tolist() == [1.0]
"""
SUPPRESSED_BY = {"CI", "ORT_RUNNING_UNIT_TESTS", "ORT_DISABLE_TELEMETRY"}
"""Variables that keep onnxruntime from preparing reports, however the package opens a model."""


@pytest.mark.server
def test_onnxruntime_leaves_no_files_of_reports(tmp_path: Path) -> None:
    """Otherwise there is a session in TMPDIR and a database of reports in the home folder."""
    environment = {name: value for name, value in os.environ.items() if name not in SUPPRESSED_BY}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, timeout=300)
    assert [*tmp_path.rglob("*")] == []
