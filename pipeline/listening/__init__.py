"""The listening stages: voice activity and transcription."""
