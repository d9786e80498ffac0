"""Voice activity detectors (VAD): ``silero.py``, its network, and the windows that it skips."""
