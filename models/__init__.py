"""Adapters from real models to the interfaces of the pipeline, and the catalog of their weights."""
