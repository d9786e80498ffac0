"""Language models: ``openai.py`` over HTTP, ``llama_cpp.py``, ``ort`` and ``vllm`` in this process."""
