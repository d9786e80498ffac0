"""What ``make audit`` makes of pip-audit's report: above all, that nothing checked is not nothing found."""

from __future__ import annotations

from typing import Any

import pytest
from support.release import vulnerabilities

REASON = "Dependency not found on PyPI and could not be audited"
SOUND = {"name": "h11", "version": "0.16.0", "vulns": []}
UNKNOWN = {"name": "numpy", "skip_reason": REASON}
OURS = {"name": "rejoinder", "skip_reason": REASON}
BROKEN = {
    "name": "jinja2",
    "version": "3.0.0",
    "vulns": [{"id": "PYSEC-2026-1", "fix_versions": ["3.1.6"], "aliases": [], "description": "It is bad."}],
}


@pytest.mark.parametrize(
    ("parts", "arguments", "status", "said"),
    [
        ([SOUND, OURS], [], 0, "1 packages checked"),
        ([SOUND, UNKNOWN], [], 0, "not checked, because pypi does not know them: numpy"),
        ([SOUND, BROKEN], [], 1, "jinja2 3.0.0: PYSEC-2026-1, mended in 3.1.6"),
        ([SOUND, BROKEN], ["--offline-ok"], 1, "PYSEC-2026-1"),
        ([UNKNOWN, OURS], [], 3, "NOT CHECKED"),
        ([UNKNOWN, OURS], ["--offline-ok"], 0, "NOT CHECKED"),
    ],
)
def test_audit_that_checked_nothing_does_not_pass(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    parts: list[dict[str, Any]],
    arguments: list[str],
    status: int,
    said: str,
) -> None:
    monkeypatch.setattr(
        vulnerabilities, "ask", lambda service, folders: vulnerabilities.read({"dependencies": parts})
    )
    monkeypatch.setattr("sys.argv", ["vulnerabilities.py", "/site-packages", *arguments])
    assert vulnerabilities.main() == status
    assert said in capsys.readouterr().out
