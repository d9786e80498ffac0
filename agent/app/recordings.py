"""Reads the audio files that an agent plays."""

from __future__ import annotations

from pathlib import Path

from rejoinder.agent.app.tool import ToolError
from rejoinder.pipeline import AudioChunk, to_pcm

RECORDING_S = 600.0
"""Longest recording, in seconds: a minute of it takes up to 6 MB of memory."""


def load_recording(file: Path) -> AudioChunk:
    """Return an audio file (WAV, FLAC, OGG or MP3) as mono audio at its own rate.

    Raises ToolError for a file that is missing, is no audio, is empty or is longer than ``RECORDING_S``. The
    caller does not get its path.
    """
    import soundfile

    try:
        with soundfile.SoundFile(file) as opened:
            seconds = opened.frames / opened.samplerate
            if not 0.0 < seconds <= RECORDING_S:
                raise ToolError(f"The recording has {seconds:.1f} s: it must have up to {RECORDING_S:g} s.")
            samples = opened.read(dtype="float32", always_2d=True).mean(axis=1)
            return AudioChunk(to_pcm(samples), opened.samplerate)
    except (OSError, soundfile.LibsndfileError) as error:
        raise ToolError(f"The recording {file.name} cannot be played.") from error
