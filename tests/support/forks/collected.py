"""Collects the tests where it is imported: in the fork server of the workers, which then have all modules.

Each worker collects the tests anew, from modules that are imported and compiled already.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from support.forks.forking import COLLECTED_VARIABLE

# The fork server has imported a part of ``support`` before pytest could rewrite its assertions.
QUIETLY = ("--collect-only", "-p", "no:terminal", "-W", "ignore::pytest.PytestAssertRewriteWarning")


class Broken:
    """A pytest plugin that forgets the modules that could not be imported.

    pytest leaves such a module in ``sys.modules``. The workers would find it there, without its tests, and
    report nothing.
    """

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        path = Path(report.nodeid).resolve()
        for name, module in list(sys.modules.items()):
            if report.failed and getattr(module, "__file__", None) == str(path):
                del sys.modules[name]


pytest.main([*QUIETLY, *json.loads(os.environ[COLLECTED_VARIABLE])], plugins=[Broken()])
