"""Asks two public services whether a known vulnerability affects what is installed (``make audit``).

    python tests/support/release/vulnerabilities.py SITE_PACKAGES... [--offline-ok]

It needs pip-audit. Exits with 1 for a vulnerability, and with 3 where no service has answered: then nothing
was checked. ``--offline-ok`` turns 3 into 0, with the same line. pip-audit itself succeeds where a service
knows none of the packages, such as behind a mirror without that interface.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

SERVICES = ("pypi", "osv")
"""PyPI's own interface, and https://osv.dev. Both have the database of the Python Packaging Authority."""
SECONDS = 300
"""Longest wait for a service, in seconds."""
OURS = "rejoinder"
"""The one distribution that no service knows."""


@dataclass
class Audit:
    """What a service has said. unknown: distributions that it does not know."""

    checked: int = 0
    unknown: list[str] = field(default_factory=list)
    vulnerable: list[str] = field(default_factory=list)
    failure: str = ""


def read(report: dict[str, Any]) -> Audit:
    """Return what is in pip-audit's report."""
    found = Audit()
    for one in report["dependencies"]:
        if "skip_reason" in one:
            found.unknown += [one["name"]] if one["name"] != OURS else []
            continue
        found.checked += 1
        for each in one["vulns"]:
            mended = ", ".join(each["fix_versions"]) or "no version yet"
            found.vulnerable.append(f"{one['name']} {one['version']}: {each['id']}, mended in {mended}")
    return found


def ask(service: str, folders: list[str]) -> Audit:
    """Return what a service says of the distributions in the folders."""
    paths = [part for folder in folders for part in ("--path", folder)]
    command = [sys.executable, "-m", "pip_audit", "-s", service, "-f", "json", "--timeout", "15", *paths]
    command += ["--progress-spinner", "off"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        return read(json.loads(ran.stdout))
    except subprocess.TimeoutExpired:
        return Audit(failure=f"no answer within {SECONDS} s")
    except ValueError:  # no report
        return Audit(failure=(ran.stderr.strip() or "no report").splitlines()[-1][:300])


def main() -> int:
    """Ask the services in turn, until one has checked something; print what it says."""
    folders = [one for one in sys.argv[1:] if not one.startswith("--")]
    for service in SERVICES:
        found = ask(service, folders)
        if found.checked:
            break
        print(f"{service}: nothing checked: {found.failure or 'it knows none of the packages'}")
    else:
        print("NOT CHECKED for known vulnerabilities: no service could be reached. It needs a network.")
        return 0 if "--offline-ok" in sys.argv else 3
    print(f"{found.checked} packages checked for known vulnerabilities by {service}")
    if found.unknown:
        print(f"not checked, because {service} does not know them: {', '.join(sorted(found.unknown))}")
    print("\n".join(found.vulnerable) or "none found")
    return 1 if found.vulnerable else 0


if __name__ == "__main__":
    sys.exit(main())
