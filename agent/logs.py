"""The log of the process: a level for libraries and one for Rejoinder, and no secrets.

Each log record, of any library and for any handler, is a ``SafeRecord``. Its message and traceback contain no
keys, no tokens and no ids that open a conversation. Their length is bounded. ``log_format`` writes the
records as lines.
"""

from __future__ import annotations

import logging
import os
import re
import string
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, TextIO
from urllib.parse import quote

from rejoinder.agent.config import Settings
from rejoinder.agent.faults import LOG_FAULT, count_fault
from rejoinder.models.llm.openai import KEY_VARIABLES
from rejoinder.models.redis_server import passwords_of
from rejoinder.pipeline import ModelError

LONGEST_LOGGED = 8192
"""Most characters of a message, and of a traceback; a longer text loses its middle."""
SHORTEST_SECRET = 8
"""Least characters of a secret. A shorter value, such as "none", is a placeholder or a common word."""
VARIABLES = (*KEY_VARIABLES, "REJOINDER_KEY")
"""Environment variables that hold keys."""
HIDDEN = "***"
"""What a line shows in place of a secret."""
KEY_CHARACTERS = f"{string.ascii_letters}{string.digits}-._~+/=%"
"""Characters that a key may consist of."""

HEADER = re.compile(
    r"""((?:authorization|x-twilio-signature|cookie|api-key)\\?["']?\s{0,2}"""
    r"""(?:[:=,]\s{0,2}b?(?="|')|[:=]\s{0,2}))"""
    r"""("(?:[^"\\\n]|\\.)*|'(?:[^'\\\n]|\\.)*|[^"'\n][^\n]*)""",
    re.IGNORECASE,
)
"""A header: as a line, in a dictionary, or in a list of pairs of bytes. A bare value ends with its line."""
BEARER = re.compile(r"(bearer\s{1,4})[\w.~+/=-]{12,}", re.IGNORECASE)
"""A key in an ``Authorization`` header."""
PROTOCOL_KEY = re.compile(r"""(openai-insecure-api-key\.)[^\s,"']+""", re.IGNORECASE)
"""A key in the name of a WebSocket subprotocol, as browsers send it."""
PARAMETER = re.compile(
    r"""(?<![\w-])([\w-]*(?:conversation_id|key|secret|signature|token)=)[^&;\s"'#,)]+""", re.IGNORECASE
)
"""A parameter of a URL or a form."""
PREFIXED = re.compile(
    r"((?:(?<![A-Za-z0-9])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrt]))(?:rj_|ek_|sk-|conv_))[\w.~+/=-]{6,}"
)
"""A Rejoinder key, a client secret, an OpenAI key, or a conversation id, which reopens the conversation."""
REST = re.compile(r"(\.\.\.)[\w~-]{6,}")
"""The text after a library's ellipsis in a long message: it may be the end of a secret."""
PATTERNS = (HEADER, BEARER, PROTOCOL_KEY, PARAMETER, PREFIXED, REST)
"""Patterns to hide. Each takes linear time on any text: no character can match in two ways."""


def safe(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text without secrets, at most ``LONGEST_LOGGED`` characters long. secrets: values to hide."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    if len(text) > LONGEST_LOGGED:
        # The patterns do not recognise half a secret, so the cut also removes the characters around it.
        begin = text[: LONGEST_LOGGED // 2].rstrip(KEY_CHARACTERS)
        end = text[-LONGEST_LOGGED // 2 + 40 :].lstrip(KEY_CHARACTERS)
        text = f"{begin} [{len(text)} characters in all] {end}"
    for pattern in PATTERNS:
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text


def one_line(said: str) -> str:
    """Return text from a client with each unprintable character as "?", so that it cannot add log lines."""
    return "".join(each if each.isprintable() else "?" for each in said)


class SafeRecord(logging.LogRecord):
    """A record whose message, traceback and stack hide what ``safe`` hides. secrets: values to hide.

    is_line: whether the message is the finished line of a formatter, which hides the secrets of each field.
    """

    secrets: ClassVar[tuple[str, ...]] = ()
    is_line = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.exc_info:  # every formatter uses exc_text if it is set
            self.exc_text = safe(logging.Formatter().formatException(self.exc_info), self.secrets)
        if self.stack_info:
            self.stack_info = safe(self.stack_info, self.secrets)

    def getMessage(self) -> str:
        """Return the message with its arguments."""
        try:
            text = super().getMessage()
        except (TypeError, ValueError, KeyError):  # logging would print mismatched arguments unchanged
            text = f"{self.msg} {self.args}"
        # An ``extra`` of that name would hide the class's values.
        return text if self.is_line else safe(text, type(self).secrets)


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes the log to the standard error stream, and counts the lines that it cannot write.

    When it can write again, a line says how many were late or are missing. ``logging`` would print a
    traceback for each of them, to the same full disk.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        before = self._lost
        super().emit(record)
        if before and self._lost == before:
            self._lost = 0
            said = f"{before} lines of this log could not be written when they were due"
            super().emit(SafeRecord(__name__, logging.WARNING, __file__, 0, said, None, None))

    def handleError(self, record: logging.LogRecord) -> None:
        """Count a record that could not be written, because the disk is full or the reader has gone."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)  # a mistake in the code that logs: it is printed with its place
            return
        self._lost += 1
        count_fault(LOG_FAULT)


def secrets_of(settings: Settings, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values to hide, plain and percent-encoded, the longest first."""
    values = [one.get_secret_value() for one in (settings.twilio_auth_token, settings.guard.moderation_key)]
    stores = [
        settings.answer_cache,
        *(s.get_secret_value() for s in (settings.conversations, settings.limits_store)),
    ]
    for url in stores:
        values += passwords_of(url)
    values += [environment.get(name, "") for name in VARIABLES]
    for table in settings.models.values():
        values.append(environment.get(table.key_env, ""))
        if table.key_file:
            with suppress(ModelError):  # loading the model reports it
                values.append(table.key(""))
        values += [one.get_secret_value() for one in table.headers.values()]
    known = {value.strip() for value in values if len(value.strip()) >= SHORTEST_SECRET}
    return tuple(sorted(known | {quote(value, safe="") for value in known}, key=len, reverse=True))


def of_libraries(level: str, words: bool) -> str:
    """Return the log level of libraries: at ``info`` they log each request, at ``debug`` its content.

    words: whether the log may contain the words of callers.
    """
    if level == "debug" and not words:
        return "info"
    return "warning" if level == "info" else level


def set_up(settings: Settings) -> None:
    """Start logging to the standard error stream."""
    from rejoinder.agent.log_format import formatter  # structlog takes 30 ms to import

    secrets = SafeRecord.secrets = secrets_of(settings, os.environ)
    logging.setLogRecordFactory(SafeRecord)
    handler = LogHandler()
    handler.setFormatter(
        formatter(settings.log_format, sys.stderr.isatty(), lambda text: safe(text, secrets))
    )
    level = of_libraries(settings.log_level, settings.log_words)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("rejoinder").setLevel(settings.log_level.upper())
