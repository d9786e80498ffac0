"""The form of the log's lines: for a terminal, or one JSON object each. structlog renders both.

All code logs with the standard library, so lines of libraries have the same form. A record's ``extra``
becomes fields of the JSON object. A message is complete without them: any other formatter works, too.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from structlog.processors import JSONRenderer
from structlog.stdlib import ExtraAdder, ProcessorFormatter
from structlog.typing import EventDict, WrappedLogger

from rejoinder.agent.settings.log import AUTO_FORM, JSON_FORM
from rejoinder.pipeline.engines import call_id

SECRET_FIELD = re.compile(r"authorization|cookie|api[-_]?key|secret|signature|token|password", re.IGNORECASE)
"""Names of fields whose values are never logged."""
MOST_NESTED = 6
"""Levels of lists and dictionaries in a field; deeper ones become text."""
LEVEL_COLOURS = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m", "debug": "\x1b[2m"}
"""The colour of a line in a terminal, by its level."""
COLOUR_END = "\x1b[0m"
"""Ends a colour."""
HIDDEN_FIELD = "***"
"""What a line shows in place of the value of a ``SECRET_FIELD``."""

LINE_END = re.compile(r"\r?\n")
"""What ends a line of a traceback. Other line breaks, such as U+2028, are not printable."""
INVISIBLE = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that JSON leaves as they are, and that break lines, turn text round, or control a terminal."""
TO_JSON = JSONRenderer(ensure_ascii=False)
"""Writes a record as JSON."""
ADD_EXTRA = ExtraAdder()
"""Adds a record's ``extra`` to its fields."""


def is_json(form: str, terminal: bool) -> bool:
    """Return whether a line of the log is a JSON object. terminal: as in ``formatter``."""
    return form == JSON_FORM or (form == AUTO_FORM and not terminal)


def formatter(form: str, terminal: bool, safe: Callable[[str], str]) -> logging.Formatter:
    """Return the formatter of a form.

    terminal: whether the lines go to a terminal. safe: hides secrets in a text.
    """
    finish: Any = rendered_json if is_json(form, terminal) else partial(rendered_pretty, terminal)
    return ProcessorFormatter(
        foreign_pre_chain=[with_extra, with_traceback],
        processors=[described, partial(redacted, safe), finish],
        use_get_message=True,
    )


def with_extra(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Add the ``extra`` of a record, which does not replace the message."""
    return {**ADD_EXTRA(logger, method, dict(event)), **event}


def with_traceback(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Replace the exception of a record by its traceback as text, which contains no secrets."""
    if event.pop("exc_info", None):
        event["exception"] = event["_record"].exc_text
    return event


def described(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Add the time, the level, the logger, the call's id and the traceback of a record."""
    record: logging.LogRecord = event.pop("_record")
    record.is_line = True  # it gets the rendered line as its message, whose fields are safe one by one
    event.pop("_from_structlog")
    event.pop("color_message", None)  # uvicorn's second copy of a message
    about = {
        "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": event.pop("event"),
    }
    call = {"call": id_} if (id_ := call_id.current.get()) else {}
    return {**about, **call, **event, **about}  # an integrator's field of the same name does not replace ours


def redacted(
    safe: Callable[[str], str], logger: WrappedLogger, method: str, event: EventDict
) -> Mapping[str, Any]:
    """Hide the secrets in all fields, however deeply nested. safe: hides them in a text."""
    return {name: _safe_value(safe, name, value, 0) for name, value in event.items()}


def _safe_value(safe: Callable[[str], str], name: str, value: object, depth: int) -> object:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if SECRET_FIELD.search(name) and value:
        return HIDDEN_FIELD
    if isinstance(value, Mapping) and depth < MOST_NESTED:
        return {safe(str(key)): _safe_value(safe, str(key), each, depth + 1) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and depth < MOST_NESTED:
        return [_safe_value(safe, "", each, depth + 1) for each in value]
    return safe(str(value))


def visible(text: str) -> str:
    """Return text in which control characters are "?", and further lines begin with blanks.

    Messages quote clients and servers. So none of them can end a line, begin another one that looks like a
    line of this log, or send commands to the operator's terminal.
    """
    lines = (
        "".join(each if each.isprintable() or each == "\t" else "?" for each in line)
        for line in LINE_END.split(text)
    )
    return "\n    ".join(lines)


def rendered_json(logger: WrappedLogger, method: str, event: EventDict) -> str:
    """Return a record as a JSON object in one line, in which every control character is escaped."""
    return INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", str(TO_JSON(logger, method, event)))


def rendered_pretty(colours: bool, logger: WrappedLogger, method: str, event: EventDict) -> str:
    """Return a record as text: the message, the call unless the message names it, and the traceback."""
    when = datetime.fromisoformat(event["timestamp"]).astimezone()
    level, text = event["level"], visible(str(event["event"]))
    line = f"{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03} {event['logger']} {level.upper()} {text}"
    if (call := visible(str(event.get("call", "")))) and call not in text:
        line += f" (call {call})"
    if colours and level in LEVEL_COLOURS:
        line = f"{LEVEL_COLOURS[level]}{line}{COLOUR_END}"
    added = (visible(str(event[name])) for name in ("exception", "stack_info") if name in event)
    return "\n    ".join([line, *added])
