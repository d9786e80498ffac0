"""A hotel's agent that answers from a folder of Markdown. SQLite searches it while the caller speaks.

    rejoinder serve examples/hotel.py
    KNOWLEDGE=my_folder rejoinder serve examples/hotel.py

The folder is read when the server starts. Each section of a file, from heading to heading, is one passage.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from rejoinder import Agent, Call

FOLDER = Path(__file__).parent / "hotel"
PASSAGES = 3
QUESTION_WORDS = frozenset(
    "a an the i me my we us our you your it is are am do does did be been can could will would shall"
    " should may have has had how what when where which who why if in on at to of for from with and or"
    " but there this that any some much many get got want need please know tell".split()
)


def passages(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the heading and the text of each section of the Markdown files."""
    for path in sorted(folder.rglob("*.md")):
        heading = path.stem
        for part in re.split(r"^(#{1,6} .+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            if part.startswith("#"):
                heading = part.lstrip("# ").strip()
            elif text := " ".join(part.split()):
                yield heading, text


def index(folder: Path) -> sqlite3.Connection:
    """Return a database in memory that finds the passages. A word counts three times in a heading."""
    db = sqlite3.connect(":memory:", check_same_thread=False)
    db.execute("CREATE VIRTUAL TABLE passage USING fts5(heading, text, tokenize = 'porter unicode61')")
    db.executemany("INSERT INTO passage VALUES (?, ?)", passages(folder))
    db.execute("INSERT INTO passage(passage, rank) VALUES ('rank', 'bm25(3.0, 1.0)')")
    return db


def search(db: sqlite3.Connection, words: str) -> list[str]:
    """Return the passages that fit the words best; none if no word of them is in any.

    One that fits less than half as well as the best would only distract the language model.
    """
    asked = [word for word in re.findall(r"\w+", words.lower()) if word not in QUESTION_WORDS]
    query = " OR ".join(f'"{word}"' for word in asked)
    rows = db.execute("SELECT *, rank FROM passage(?) ORDER BY rank LIMIT ?", [query or '""', PASSAGES])
    found = list(rows)
    return [f"{heading}: {text}" for heading, text, rank in found if rank <= found[0][2] / 2]  # below 0


@asynccontextmanager
async def opened() -> AsyncIterator[sqlite3.Connection]:
    """Read the folder once, for all calls."""
    with closing(index(Path(os.environ.get("KNOWLEDGE", FOLDER)))) as db:
        yield db


agent = Agent[None, sqlite3.Connection](
    "You answer guests of the Mill Hotel on the telephone, in one or two short sentences, from the "
    "information that you get. If it has no answer, say that you will ask.",
    greeting="Mill Hotel, how can I help?",
    lifespan=opened,
)


@agent.context
async def look_up(call: Call[None, sqlite3.Connection], words: str) -> list[str]:
    """Search for what the caller has said so far."""
    return search(call.resources, words)  # it takes less than a millisecond, so it needs no thread
