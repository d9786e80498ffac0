"""Opens the recordings that the settings name, and makes the recorder of each call."""

from __future__ import annotations

from functools import partial

from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.metrics.telemetry import Telemetry
from rejoinder.agent.recording.recorder import AudioRecorder, RecordedCall
from rejoinder.agent.recording.recordings import Recordings
from rejoinder.models.hints import NotInstalled
from rejoinder.pipeline import PipelineError


def open_recordings(settings: Settings, telemetry: Telemetry) -> Recordings | None:
    """Return the recordings of the server, None if there are none.

    Raises ConfigError if the folder or the keys cannot be used, or if there is no folder for what is set.
    """
    if missing := settings.missing_folder:
        raise ConfigError(missing)
    if not settings.records:
        return None
    try:
        return Recordings(settings, partial(telemetry.count, "recordings"))
    except OSError as error:
        raise ConfigError(f"recordings: {error.filename}: {error.strerror}") from error
    except (PipelineError, NotInstalled) as error:
        raise ConfigError(f"recording_key_file: {error}") from error


def recorder_of(recordings: Recordings | None, info: CallInfo) -> AudioRecorder | None:
    """Return the recorder of a call, None where there are no recordings."""
    if recordings is None:
        return None
    return recordings.recorder(RecordedCall(info.id, info.wire, info.caller, info.called))
