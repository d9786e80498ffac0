"""``rejoinder simulate``: a call from a YAML file, and what went wrong in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.paths import ROOT
from typer.testing import CliRunner

from rejoinder.agent.cli.app import app

RESTAURANT = str(ROOT / "examples" / "restaurant.py")


def simulate(script: Path | str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["simulate", RESTAURANT, str(script)])
    return done.exit_code, done.output


def test_the_example_is_booked() -> None:
    code, shown = simulate(ROOT / "examples" / "restaurant.yaml")
    assert code == 0, shown
    lines = [line.split(maxsplit=2) for line in shown.splitlines() if " ok " in line]
    assert lines[2][2].strip() == "expects book(people=4, name='Anna')"
    assert [line[1] for line in lines] == ["ok"] * 7 and 3.0 < float(lines[2][0]) < 12.0


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ("expects: {tool: free_tables, within: 3}", "there was not a call of free_tables within 3 s"),
        ("expects: it is raining", "there was not the words 'it is raining' within 10 s"),
        ("expects: {tool: book, arguments: {people: 5}}", "it was called with {'people': 4"),
    ],
)
def test_what_was_expected_and_did_not_happen_is_said(step: str, why: str, tmp_path: Path) -> None:
    script = tmp_path / "call.yaml"
    text = (ROOT / "examples" / "restaurant.yaml").read_text()
    script.write_text(
        text.replace("expects: {tool: book, arguments: {people: 4, name: Anna}, within: 4}", step)
    )
    code, shown = simulate(script)
    assert code == 1 and why in " ".join(shown.split()), shown
    assert " no " in shown


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("call: []\nreplies: [a]\n", "call: List should have at least 1 item"),
        ("replies: [a]\ncall: [{says: a, waits: 1}]\n", "write one of says, waits and expects"),
        ("replies: [a]\ncall: [{sings: a}]\n", "call.0.sings: Extra inputs are not permitted"),
        ("replies: [a\n", "cannot be read"),
    ],
)
def test_a_file_that_is_no_call_is_refused(text: str, why: str, tmp_path: Path) -> None:
    script = tmp_path / "call.yaml"
    script.write_text(text)
    code, shown = simulate(script)
    assert code == 2 and why in " ".join(shown.split())
