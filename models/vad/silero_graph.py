"""Silero's network as matrix products over all windows: equal results in a third of the time.

The published graph (https://github.com/snakers4/silero-vad) convolves each window by itself. A window has
only four frames of spectrum, so onnxruntime computes many small products. Here the frames of all windows are
the rows of one product per layer, with the published weights.
"""

from __future__ import annotations

from typing import Any

from rejoinder.models.onnx.nodes import Nodes

GRAPH_WINDOW = 576
"""Samples of a window with its context."""
SPECTRUM_FRAMES = 4
"""Frames of spectrum in a window."""
SPECTRUM_HOP = 128
"""Samples from one frame to the next."""
BINS = 129
"""Frequencies of a frame."""


def regrouped(model: Any) -> bytes:
    """Return the serialised graph for sequences of windows of several sessions.

    Sessions are the second axis of the state, float32 [1, sessions, 128]. The input is float32
    [windows * sessions, ``GRAPH_WINDOW``]: the first window of each session, then the second of each, and so
    on. Raises KeyError if a weight is missing.
    """
    from onnx import helper, numpy_helper

    weights = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    recurrent = [f"onnx::LSTM_{number}" for number in (209, 210, 211)]
    built = Nodes()
    found = _encoded(built, _spectrum(built, weights["stft.forward_basis_buffer"]), weights)
    side_by_side = built.add("Shape", "h", start=1)  # sessions, and the width of their state
    shape = built.add("Concat", built.constant([-1]), side_by_side, axis=0)
    steps = built.add("Reshape", found, shape)
    for name in recurrent:
        built.constants.append(numpy_helper.from_array(weights[name], name))
    inputs = [steps, *recurrent, "", "h", "c"]
    built.nodes.append(helper.make_node("LSTM", inputs, ["heard", "hn", "cn"], hidden_size=128))
    heard = built.add("Relu", built.add("Reshape", "heard", built.constant([-1, 128])))
    output = weights["output.weight"][:, :, 0].T, weights["output.bias"]
    speech = built.add("Sigmoid", _product(built, heard, *output))
    built.add("Reshape", speech, built.constant([-1]), name="speech_probs")
    ends = list(model.graph.input), list(model.graph.output)
    for one in (*ends[0][1:], *ends[1][1:]):
        one.type.tensor_type.shape.dim[1].dim_param = "sessions"
    graph = helper.make_graph(built.nodes, "silero", *ends, built.constants)
    made = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return bytes(made.SerializeToString())


def _product(built: Nodes, rows: str, matrix: Any, bias: Any) -> str:
    return built.add("Gemm", rows, built.constant(matrix), built.constant(bias))


def _spectrum(built: Nodes, basis: Any) -> str:
    """Add the spectrum and return the name of its magnitudes, [frames, ``BINS``]."""
    mirrored = built.cut("input", 1, GRAPH_WINDOW - 2, GRAPH_WINDOW - 2 - SPECTRUM_HOP // 2, -1)
    hops = built.constant([-1, SPECTRUM_FRAMES + 1, SPECTRUM_HOP])
    halves = built.add("Reshape", built.add("Concat", "input", mirrored, axis=1), hops)
    frames = built.add(
        "Concat",
        built.cut(halves, 1, 0, SPECTRUM_FRAMES),
        built.cut(halves, 1, 1, SPECTRUM_FRAMES + 1),
        axis=2,
    )
    rows = built.add("Reshape", frames, built.constant([-1, 2 * SPECTRUM_HOP]))
    bins = built.add("MatMul", rows, built.constant(basis[:, 0].T))
    real, imaginary = built.cut(bins, 1, 0, BINS), built.cut(bins, 1, BINS, 2 * BINS)
    squares = built.add("Mul", real, real), built.add("Mul", imaginary, imaginary)
    return built.add("Sqrt", built.add("Add", *squares))


def _encoded(built: Nodes, rows: str, weights: dict[str, Any]) -> str:
    """Add the four convolutions and return the name of their output, one row per window.

    The second and third have a stride of two frames: a window has 4, 4, 2, 1 and 1 frames before and after
    each layer. Weights that only see padding are left out.
    """
    places = (
        ("encoder.0", slice(0, 3), 4, ((0, 4), (1, 5), (2, 6)), 1),
        ("encoder.1", slice(0, 3), 4, ((0, 3), (1, 4), (2, 5)), 2),
        ("encoder.2", slice(1, 3), 2, (), 2),
        ("encoder.3", slice(1, 2), 1, (), 1),
    )
    for layer, taps, frames, shifts, step in places:
        kernel = weights[f"{layer}.weight"][:, :, taps]
        if shifts:
            each = built.add("Reshape", rows, built.constant([-1, frames, kernel.shape[1]]))
            padded = built.add("Pad", each, built.constant([0, 1, 0, 0, 1, 0]))
            seen = [built.cut(padded, 1, first, last, step) for first, last in shifts]
            rows = built.add("Concat", *seen, axis=2)
        matrix = kernel.transpose(2, 1, 0).reshape(-1, len(kernel))
        rows = built.add("Reshape", rows, built.constant([-1, len(matrix)]))
        rows = built.add("Relu", _product(built, rows, matrix, weights[f"{layer}.bias"]))
    return rows
