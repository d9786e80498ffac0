"""Reports of an evaluation for other programs: JSON, and the XML that CI systems read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from xml.etree import ElementTree

from rejoinder.agent.simulate.evaluation.running import CallOutcome


def as_json(outcomes: Sequence[CallOutcome]) -> str:
    """Return the outcomes as a JSON object: whether all are good, and each call with its repetitions."""
    report = {"good": all(one.good for one in outcomes), "calls": [one.as_dict() for one in outcomes]}
    return json.dumps(report, indent=1, ensure_ascii=False)


def as_junit(outcomes: Sequence[CallOutcome]) -> str:
    """Return the outcomes as JUnit's XML: a test case per call, which fails below its threshold.

    The elements and attributes are those of Jenkins' schema
    (github.com/jenkinsci/xunit-plugin, junit-10.xsd).
    """
    bad = sum(not one.good for one in outcomes)
    seconds = sum(run.seconds for one in outcomes for run in one.repetitions)
    counts = {"tests": str(len(outcomes)), "failures": str(bad), "errors": "0", "time": f"{seconds:.2f}"}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "rejoinder eval", "skipped": "0", **counts})
    for one in outcomes:
        took = f"{sum(run.seconds for run in one.repetitions):.2f}"
        case = ElementTree.SubElement(suite, "testcase", name=one.name, classname="rejoinder.eval", time=took)
        told = [
            f"repetition {number}: {'; '.join(run.mistakes)}\n{run.story}"
            for number, run in enumerate(one.repetitions, 1)
            if run.mistakes
        ]
        text = "\n\n".join(told)
        if not one.good:
            rate = f"{one.passed} of {len(one.repetitions)} passed, {one.threshold:.0%} must"
            ElementTree.SubElement(case, "failure", message=rate, type="threshold").text = _valid(text)
        elif told:
            ElementTree.SubElement(case, "system-out").text = _valid(text)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def _valid(text: str) -> str:
    """Return a text without the characters that XML 1.0 forbids."""
    return "".join(one for one in text if one in "\n\t" or one >= " ")
