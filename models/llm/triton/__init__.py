"""Language models in Triton Inference Server, by its generate extension."""
