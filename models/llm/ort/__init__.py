"""A small language model in onnxruntime."""
