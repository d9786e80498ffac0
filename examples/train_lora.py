"""Trains a LoRA of the embedded language model on exported calls, on the processor, and writes a GGUF file.

    rejoinder export calls traces.jsonl --consented --out sft.jsonl --pairs pairs.jsonl
    python examples/train_lora.py sft.jsonl tuned.gguf --pairs pairs.jsonl
    rejoinder serve --llm ort:./tuned.gguf

LoRA: Hu et al. 2021. Preferences: DPO, Rafailov et al. 2023. The trainers are TRL's. The weights that were
trained get 8 bits in the file; the others keep theirs.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the weights are here already

import gguf
import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

import rejoinder.models.weights.fetch as weights

MODEL = "smollm2-135m-instruct"
LEAVE_OUT = -100
"""The label of a token that is no example."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("calls", type=Path, help="examples of rejoinder export calls --out")
    parser.add_argument("tuned", type=Path, help="GGUF file to write")
    parser.add_argument("--pairs", type=Path, help="preference pairs of rejoinder export calls --pairs")
    parser.add_argument("--steps", type=int, default=60, help="steps on the examples; a quarter on the pairs")
    parser.add_argument("--adapter", type=Path, help="folder to keep the LoRA in, as PEFT reads it")
    given = parser.parse_args()

    (source,) = weights.fetch(MODEL).glob("*.gguf")
    named = {"gguf_file": source.name, "dtype": torch.float32}
    model = AutoModelForCausalLM.from_pretrained(
        source.parent, **named, quantization_config=GgufConfig(dequantize=True)
    )
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)

    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    rows = [tokens_of(json.loads(line), tokenizer) for line in given.calls.open(encoding="utf-8")]
    with TemporaryDirectory() as folder:
        common = {"output_dir": folder, "use_cpu": True, "bf16": False, "report_to": "none", "seed": 0}
        common |= {"logging_steps": 1, "save_strategy": "no", "gradient_checkpointing": False}
        common |= {"disable_tqdm": True, "lr_scheduler_type": "constant"}
        settings = SFTConfig(
            **common, max_steps=given.steps, learning_rate=1e-3, per_device_train_batch_size=2
        )
        trainer: Any = SFTTrainer(
            model,
            settings,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            peft_config=lora,
        )
        trainer.train()
        report("examples", trainer)
        if given.pairs and (lines := given.pairs.read_text(encoding="utf-8").splitlines()):
            pairs = [
                {name: json.loads(line)[name] for name in ("prompt", "chosen", "rejected")} for line in lines
            ]
            steps = max(1, given.steps // 4)
            preferring = DPOConfig(
                **common, max_steps=steps, learning_rate=1e-4, per_device_train_batch_size=1
            )
            trainer = DPOTrainer(
                trainer.model,
                args=preferring,
                train_dataset=Dataset.from_list(pairs),
                processing_class=tokenizer,
            )
            trainer.train()
            report("pairs", trainer)
    if given.adapter:
        trainer.model.save_pretrained(given.adapter)
    write(source, given.tuned, trainer.model.merge_and_unload())
    print(f"wrote {given.tuned}; use it: rejoinder serve --llm ort:{given.tuned.absolute()}")


def tokens_of(example: dict[str, Any], tokenizer: Any) -> dict[str, list[int]]:
    """Return the tokens of a conversation; only the answers that callers heard to their end are labels."""
    tokens: list[int] = []
    labels: list[int] = []
    messages = [{**message, "content": message["content"] or ""} for message in example["messages"]]
    done = ""
    for number, message in enumerate(messages):
        answers = message["role"] == "assistant"
        if answers:
            prompt = rendered(tokenizer, messages[:number], True)
            new = tokenizer(prompt.removeprefix(done), add_special_tokens=False)["input_ids"]
            tokens, labels, done = tokens + new, labels + [LEAVE_OUT] * len(new), prompt
        whole = rendered(tokenizer, messages[: number + 1], False)
        new = tokenizer(whole.removeprefix(done), add_special_tokens=False)["input_ids"]
        learned = answers and message.get("weight") != 0
        tokens, done = tokens + new, whole
        labels += new if learned else [LEAVE_OUT] * len(new)
    return {"input_ids": tokens, "labels": labels}


def rendered(tokenizer: Any, messages: list[dict[str, Any]], asks: bool) -> str:
    """Return messages as the chat template writes them. asks: whether an answer follows."""
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=asks))


def report(name: str, trainer: Any) -> None:
    """Print the loss of the first and the last steps."""
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    few = max(1, len(losses) // 5)
    first, last = np.mean(losses[:few]), np.mean(losses[-few:])
    print(f"{name}: {len(losses)} steps, loss {first:.3f} -> {last:.3f}")


def write(source: Path, target: Path, model: Any) -> None:
    """Write a copy of a GGUF file that has the trained weights of a Llama model."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            kind, part = field.types[0], field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), kind, part)
    config = model.config
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    trained = {
        names.get_name(name, (".weight",)): weights.numpy()
        for name, weights in model.state_dict().items()
        if name.endswith("_proj.weight")
    }
    for tensor in reader.tensors:
        weights = trained.pop(tensor.name, None)
        if weights is None:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            continue
        # In GGUF the two halves of a rotated pair are neighbours (llama.cpp, convert_hf_to_gguf.py).
        for part, heads in (
            (".attn_q.", config.num_attention_heads),
            (".attn_k.", config.num_key_value_heads),
        ):
            if part in tensor.name:
                halves = weights.reshape(heads, 2, -1, weights.shape[1])
                weights = halves.swapaxes(1, 2).reshape(weights.shape)
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(tensor.name, gguf.quantize(np.ascontiguousarray(weights), kind), raw_dtype=kind)
    if trained:
        raise SystemExit(f"the file has no {', '.join(map(str, trained))}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
