"""The documentation of the metrics."""

from __future__ import annotations

import re

from support.paths import ROOT

from rejoinder.agent.metrics.catalogue import metrics_table
from rejoinder.agent.metrics.server_metrics import ServerMetrics
from rejoinder.pipeline.trace import PART_NAMES

PAGE = (ROOT / "docs" / "guides" / "metrics.md").read_text()


def test_the_table_has_every_metric_with_its_unit_and_meaning() -> None:
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in list(metrics_table())[2:]]
    named = {family.name + "_total" * (family.type == "counter") for family in ServerMetrics().collect()}
    assert {row[0] for row in rows} == named
    assert all(name.startswith("rejoinder_") and unit and meaning for name, _, unit, _, meaning in rows)
    assert "<!-- generated: metrics -->" in PAGE


def test_the_page_explains_every_part_and_names_real_metrics() -> None:
    parts = re.search(r"\| part \|.*?\n\n", PAGE, re.DOTALL)
    assert parts
    assert re.findall(r"^\| `(\w+)` \|", parts[0], re.MULTILINE) == list(PART_NAMES)
    named = {line.split("`")[1] for line in list(metrics_table())[2:]}
    assert set(re.findall(r"rejoinder_\w+", PAGE)) <= named


def test_the_rules_and_the_dashboard_name_real_metrics() -> None:
    exposed = set()
    for line in list(metrics_table())[2:]:
        name, kind = line.split("`")[1], line.split("|")[2].strip()
        exposed |= {f"{name}_{end}" for end in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    for file in ("rejoinder.rules.yml", "grafana-dashboard.json"):
        text = (ROOT / "examples" / "monitoring" / file).read_text()
        used = set(re.findall(r"\brejoinder_\w+", text))
        assert used
        assert used <= exposed, file
