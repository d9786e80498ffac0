"""Adapters from models to the interfaces of the pipeline, and the catalog of weights.

Each adapter is one file in the folder of its role: ``vad``, ``turn``, ``stt``, ``llm`` or ``tts``. It has the
two or three methods of its protocol in ``pipeline/interfaces.py``, and an ``ADAPTER`` that says which
packages and weights it needs and how it is opened. To add one, write that file, and add its line to
``registry.py``; if its weights are to be fetched, list them in ``weights/catalog.toml``. ``scripted.py`` has
the smallest example of each role, for tests.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime 1.29 and later would report to its makers
