"""The weights: catalog, sources, download and cache."""
