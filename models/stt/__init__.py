"""Speech recognisers (STT): ``whisper.py``, and the languages that a Whisper knows."""
