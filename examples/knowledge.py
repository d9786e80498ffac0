"""An agent that answers from a folder of Markdown, searched by SQLite's FTS5 while the caller speaks.

    KNOWLEDGE=docs rejoinder serve examples/knowledge.py --llm openai:http://localhost:11434/v1#qwen3

The folder is read once, when the server starts. Its files are split at their headings.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from rejoinder import Agent, Call

BEST = 3
LONGEST = 600
COMMON = set(
    "a an and are can do does for how i in is it my of on or the to what when where you your".split()
)


def sections(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each section of the Markdown files."""
    for path in sorted(folder.rglob("*.md")):
        title, lines = path.stem, list[str]()
        for line in [*path.read_text(encoding="utf-8").splitlines(), "# "]:
            if re.match(r"#{1,6} ", line):
                if text := "\n".join(lines).strip():
                    yield title, text
                title, lines = line.lstrip("# "), []
            else:
                lines.append(line)


def index(folder: Path) -> sqlite3.Connection:
    """Return a database in memory with all sections; the titles count twice."""
    db = sqlite3.connect(":memory:", check_same_thread=False)
    db.execute("CREATE VIRTUAL TABLE section USING fts5(title, text, tokenize = 'porter unicode61')")
    db.executemany("INSERT INTO section VALUES (?, ?)", sections(folder))
    db.execute("INSERT INTO section(section, rank) VALUES ('rank', 'bm25(2.0, 1.0)')")
    return db


def search(db: sqlite3.Connection, words: str) -> str:
    """Return the sections that fit the words best, "" if none has any of them."""
    asked = [word for word in re.findall(r"\w+", words.lower()) if word not in COMMON]
    if not asked:
        return ""
    query = " OR ".join(f'"{word}"' for word in asked)
    found = db.execute("SELECT title, text FROM section(?) ORDER BY rank LIMIT ?", [query, BEST])
    return "\n\n".join(f"{title}: {text[:LONGEST]}" for title, text in found)


@asynccontextmanager
async def opened() -> AsyncIterator[sqlite3.Connection]:
    """Read the folder once, for all calls."""
    db = index(Path(os.environ.get("KNOWLEDGE", "docs")))
    yield db
    db.close()


agent = Agent[None, sqlite3.Connection](
    "You answer questions on the telephone, in one or two sentences, from the information that you get. If "
    "it has no answer, say so.",
    greeting="Hello, what would you like to know?",
    lifespan=opened,
)


@agent.context
async def look_up(call: Call[None, sqlite3.Connection], words: str) -> str:
    """Search for what the caller has said so far. It takes less than a millisecond, so it needs no thread."""
    return search(call.resources, words)
