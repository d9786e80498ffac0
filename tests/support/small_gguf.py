"""GGUF files that are small enough to be made in a test."""

from __future__ import annotations

from pathlib import Path


def small_tokenizer(path: Path, prefix: str = "") -> None:
    """Write a GGUF file that has a token for each byte, two of ChatML, and no weights.

    prefix: Jinja that the chat template renders before each answer.
    """
    import gguf
    from tokenizers.pre_tokenizers import ByteLevel

    writer = gguf.GGUFWriter(path, "llama")
    words = [*sorted(ByteLevel.alphabet()), "<|im_start|>", "<|im_end|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(words)
    writer.add_token_types([1] * 256 + [3] * 2)
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(257)
    writer.add_chat_template(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "<|im_start|>assistant\n" + prefix
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
