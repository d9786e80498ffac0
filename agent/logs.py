"""The log of the process: one format, one level for libraries and one for us, and no secrets in it.

Everything that is logged, by any library and to any handler, is a ``SafeRecord``: its message and traceback
have no keys, no tokens and no ids that open a conversation, and their length is bounded.
"""

from __future__ import annotations

import logging
import os
import re
import string
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar
from urllib.parse import quote

from rejoinder.agent.config import Settings
from rejoinder.models.llm.openai import KEY_VARIABLES

FORMAT = "%(asctime)s %(name)s %(levelname)s %(message)s"
LONGEST = 8192
"""Characters of a message, and of a traceback: what is longer loses its middle."""
SHORTEST_SECRET = 8
"""Characters. A shorter value of a setting is a placeholder, such as "none", and a word of other lines."""
VARIABLES = (*KEY_VARIABLES, "REJOINDER_KEY")
"""Variables of the environment that hold keys."""
HIDDEN = "***"
KEY_CHARACTERS = f"{string.ascii_letters}{string.digits}-._~+/=%"

HEADER = re.compile(
    r"""((?:authorization|x-twilio-signature|cookie|api-key)\\?["']?\s{0,2}"""
    r"""(?:[:=,]\s{0,2}b?(?="|')|[:=]\s{0,2}))"""
    r"""("(?:[^"\\\n]|\\.)*|'(?:[^'\\\n]|\\.)*|[^"'\n][^\n]*)""",
    re.IGNORECASE,
)
"""A header as a line, in a dictionary, or in a list of pairs of bytes. A bare value ends with the line."""
BEARER = re.compile(r"(bearer\s{1,4})[\w.~+/=-]{12,}", re.IGNORECASE)
PROTOCOL = re.compile(r"""(openai-insecure-api-key\.)[^\s,"']+""", re.IGNORECASE)
PARAMETER = re.compile(
    r"""(?<![\w-])([\w-]*(?:conversation_id|key|secret|signature|token)=)[^&;\s"'#,)]+""", re.IGNORECASE
)
"""A parameter of an address, or of a form."""
PREFIXED = re.compile(
    r"((?:(?<![A-Za-z0-9])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrt]))(?:rj_|ek_|sk-|conv_))[\w.~+/=-]{6,}"
)
"""A key, a client secret, a key of OpenAI's, or a conversation's id, which opens that again."""
REST = re.compile(r"(\.\.\.)[\w~-]{6,}")
"""Behind what a library leaves out of a long message: it may be the end of a secret that begins before it."""
PATTERNS = (HEADER, BEARER, PROTOCOL, PARAMETER, PREFIXED, REST)
"""Each of them reads a text once, whatever is in it: no part of them can match a character in two ways."""


def safe(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text as the log may have it, ``LONGEST`` characters at most. secrets: values to hide."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    if len(text) > LONGEST:
        # A secret that the cut divides is not recognised any more: what is left of it goes, too.
        begin = text[: LONGEST // 2].rstrip(KEY_CHARACTERS)
        end = text[-LONGEST // 2 + 40 :].lstrip(KEY_CHARACTERS)
        text = f"{begin} [{len(text)} characters in all] {end}"
    for pattern in PATTERNS:
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text


def one_line(said: str) -> str:
    """Return what may be a client's words as the log can have them: nobody writes lines of its own there."""
    return "".join(each if each.isprintable() else "?" for each in said)


class SafeRecord(logging.LogRecord):
    """A record whose message, traceback and stack hide what ``safe`` hides. secrets: values to hide."""

    secrets: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.exc_info:  # every formatter takes the text where there is one
            self.exc_text = safe(logging.Formatter().formatException(self.exc_info), self.secrets)
        if self.stack_info:
            self.stack_info = safe(self.stack_info, self.secrets)

    def getMessage(self) -> str:
        """Return the message with its arguments."""
        try:
            text = super().getMessage()
        except (TypeError, ValueError, KeyError):  # arguments that do not fit would be printed as they are
            text = f"{self.msg} {self.args}"
        return safe(text, self.secrets)


def secrets_of(settings: Settings, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values to hide, as they are and as addresses have them, the longest first."""
    values = [settings.twilio_auth_token.get_secret_value()]
    values += [environment.get(name, "") for name in VARIABLES]
    known = {value.strip() for value in values if len(value.strip()) >= SHORTEST_SECRET}
    return tuple(sorted(known | {quote(value, safe="") for value in known}, key=len, reverse=True))


def of_libraries(level: str) -> str:
    """Return the level of everything that is not ours: at ``info`` libraries tell of each request."""
    return "warning" if level == "info" else level


def set_up(settings: Settings) -> None:
    """Log to the standard error stream from now on."""
    SafeRecord.secrets = secrets_of(settings, os.environ)
    logging.setLogRecordFactory(SafeRecord)
    logging.basicConfig(level=of_libraries(settings.log_level).upper(), format=FORMAT)
    logging.getLogger("rejoinder").setLevel(settings.log_level.upper())
