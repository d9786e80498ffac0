"""Collects the tests where it is imported: in the fork server of the workers, which then have all modules.

Each worker collects the tests anew, from modules that are imported and compiled already.
"""

from __future__ import annotations

import json
import os

import pytest
from support.forks.forking import COLLECTED_VARIABLE

# The fork server has imported a part of ``support`` before pytest could rewrite its assertions.
QUIETLY = ("--collect-only", "-p", "no:terminal", "-W", "ignore::pytest.PytestAssertRewriteWarning")

pytest.main([*QUIETLY, *json.loads(os.environ[COLLECTED_VARIABLE])])
