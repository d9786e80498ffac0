"""The benchmark of turn detection, and the fit of its rule."""
