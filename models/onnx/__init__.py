"""Helpers for ONNX models and graphs."""
