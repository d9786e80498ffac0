"""The embedded language model: a small one, in onnxruntime."""
