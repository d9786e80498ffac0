"""``rejoinder`` with long limits for its store and for its own end, which take seconds on a busy machine."""

from rejoinder.__main__ import main
from rejoinder.agent.server import uvicorn_server
from rejoinder.agent.server.journal import journal, sqlite

SECONDS = 20.0

if __name__ == "__main__":
    journal.WRITTEN_S = journal.FIND_S = journal.LAST_WRITE_S = SECONDS
    sqlite.FILE_ANSWER_S = sqlite.JOURNAL_BUSY_S = SECONDS
    uvicorn_server.FORCED_SECONDS = SECONDS
    main()
