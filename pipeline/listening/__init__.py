"""The listening stages of a session: voice activity detection and transcription."""
