"""Writes the software bill of materials of a release, in CycloneDX's JSON (``make sbom``).

    python tests/support/release/bill.py ALL NAMES OUT

ALL: what ``cyclonedx-py environment`` has written of the whole environment. NAMES: the distributions that
belong to a server, one a line (runtime.py). OUT gets those only, and has to fit CycloneDX's own schema. It
needs cyclonedx-bom.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator


def plain(name: str) -> str:
    """Return the name of a distribution in its one spelling (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def restricted(bill: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """Return a bill with the named components only."""
    parts = [one for one in bill["components"] if plain(one["name"]) in names]
    known = {one["bom-ref"] for one in parts} | {bill["metadata"]["component"]["bom-ref"]}
    links = [
        {**one, "dependsOn": [each for each in one.get("dependsOn", []) if each in known]}
        for one in bill["dependencies"]
        if one["ref"] in known
    ]
    return {**bill, "components": parts, "dependencies": links}


def main() -> int:
    """Write the bill; return 1 where it does not fit the schema, or lacks a distribution."""
    whole, wanted, out = map(Path, sys.argv[1:])
    names = set(wanted.read_text().split())
    bill = restricted(json.loads(whole.read_text()), names)
    text = json.dumps(bill, indent=2, sort_keys=True) + "\n"
    version = SchemaVersion.from_version(bill["specVersion"])
    if error := JsonStrictValidator(version).validate_str(text):
        print(f"the bill does not fit the schema of CycloneDX {bill['specVersion']}: {error}")
        return 1
    root = bill["metadata"]["component"]["name"]
    if missing := names - {plain(one["name"]) for one in bill["components"]} - {plain(root)}:
        print(f"the bill lacks {', '.join(sorted(missing))}")
        return 1
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text)
    print(f"{out}: {len(bill['components'])} components, CycloneDX {bill['specVersion']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
