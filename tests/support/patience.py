"""How long tests wait for a state: one limit for all."""

from __future__ import annotations

import os

PATIENCE = 20.0 * float(os.environ.get("REJOINDER_TEST_PATIENCE", "1"))
"""Longest wait for a state, in seconds. Tests that pass do not wait for it; a busy machine needs more."""
