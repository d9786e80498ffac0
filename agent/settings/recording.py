"""The settings of recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

Form = Literal["flac", "opus"]
"""Format of a recording."""
ALWAYS = "always"
"""Each call is recorded from its start."""
ON_REQUEST = "on_request"
"""A call is recorded when its client or its agent asks for it."""
OFF = "off"
"""No call is recorded."""
LONGEST_ANNOUNCEMENT = 500
"""Most characters of an announcement."""


class RecordingSettings(BaseModel):
    """The settings of recordings. Without a folder there are none."""

    recordings: str = Field("", description="folder of the recordings of calls; empty: no recordings")
    recording: str = Field(
        ON_REQUEST,
        pattern=f"^({ALWAYS}|{ON_REQUEST}|{OFF})$",
        description="which calls are recorded: always, on_request or off",
    )
    recording_announcement: str = Field(
        "",
        max_length=LONGEST_ANNOUNCEMENT,
        description="spoken before a recording begins; speech does not interrupt it; empty: nothing",
    )
    recording_includes_announcement: bool = Field(
        True, description="begin the recording with the announcement, as proof of it, and not behind it"
    )
    recording_format: Form = Field("flac", description="format of recordings: flac or opus")
    recording_key_file: str = Field(
        "", description="file with the keys that encrypt recordings, one a line; empty: no encryption"
    )
    recording_days: float = Field(
        0.0, ge=0.0, le=36_500.0, description="days that a recording is kept; 0: for ever"
    )
    recordings_mb: int = Field(
        0, ge=0, le=100_000_000, description="most megabytes of recordings, the oldest go first; 0: no limit"
    )

    @property
    def recordings_folder(self) -> Path:
        """The folder of the recordings."""
        return Path(self.recordings).expanduser()

    @property
    def missing_folder(self) -> str:
        """The sentence about settings that want recordings where no folder is named; "" if there are none."""
        wanted = "recording is always" if self.recording == ALWAYS else ""
        if self.recordings or self.recording == OFF:
            return ""
        wanted = wanted or ("recording_key_file is set" if self.recording_key_file else "")
        return wanted and f"{wanted}, and recordings names no folder: nothing would be recorded"

    @property
    def records(self) -> bool:
        """Whether calls can be recorded."""
        return bool(self.recordings) and self.recording != OFF
