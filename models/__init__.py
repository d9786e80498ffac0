"""Adapters from models to the interfaces of the pipeline, and the catalog of weights.

Each adapter is one file in the folder of its role: ``vad``, ``turn``, ``stt``, ``llm`` or ``tts``. It has the
two or three methods of its protocol in ``pipeline/interfaces.py``. To add one, write that file, add its line
to ``built_in.py``, and list its weights in ``weights/catalog.toml``. ``scripted.py`` has the smallest example
of each role, for tests.
"""
