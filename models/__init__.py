"""Adapters from models to the interfaces of the pipeline, and the catalog of weights."""
