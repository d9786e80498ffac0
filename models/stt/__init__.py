"""Speech recognisers (STT): ``whisper.py``, its state of one session, its words and its languages."""
