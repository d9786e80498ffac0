"""The settings of the log."""

from __future__ import annotations

from pydantic import BaseModel, Field

AUTO_FORM = "auto"
"""Form of the log's lines: JSON, unless the log goes to a terminal."""
PRETTY_FORM = "pretty"
"""A line of text, in colour in a terminal."""
JSON_FORM = "json"
"""A JSON object for each line."""


class LogSettings(BaseModel):
    """The settings of the log."""

    log_level: str = Field("info", pattern="^(debug|info|warning|error)$", description="how much to log")
    log_format: str = Field(
        AUTO_FORM,
        pattern=f"^({AUTO_FORM}|{PRETTY_FORM}|{JSON_FORM})$",
        description="form of the log's lines; auto: json unless in a terminal",
    )
    log_words: bool = Field(
        False, description="at debug, log what libraries send and receive, words included"
    )
