"""Test what your agent finds: the right passage for each question, and the answer in a call.

    .venv/bin/python -m pytest examples/test_hotel.py -s

It prints the questions whose passage is not among the first three.
"""

import sys
from contextlib import closing
from pathlib import Path

from rejoinder.simulate import run, simulate

sys.path.insert(0, str(Path(__file__).parent))
from hotel import FOLDER, agent, index, search

SHARE = 0.9
"""The share of questions whose passage has to be among the first three."""


def test_the_right_passage_is_among_the_first_three() -> None:
    lines = (FOLDER / "questions.txt").read_text(encoding="utf-8").splitlines()
    questions = [line.split(" | ") for line in lines]
    with closing(index(FOLDER)) as db:
        found = {asked: [one.partition(":")[0] for one in search(db, asked)] for asked, _ in questions}
    missing = [f"{asked} -> {found[asked]}" for asked, heading in questions if heading not in found[asked]]
    print(*missing, sep="\n")
    assert len(questions) - len(missing) >= SHARE * len(questions)


def test_a_caller_is_answered_from_the_folder() -> None:
    async def call() -> None:
        async with simulate(agent, "It costs nine euros a night.") as caller:
            await caller.expects("how can I help")
            await caller.says("Where can I park my car?")
            await caller.expects("nine euros")
            assert "Parking: Cars park behind the house for 9 euros" in caller.found

    run(call())
