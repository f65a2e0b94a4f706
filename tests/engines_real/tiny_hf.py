"""Writes a two-layer Llama without weights for vLLM's `--load-format dummy`: `python tiny_hf.py FOLDER`.

One token a byte: a tokenizer that needs no training.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTEXT = 2048


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokens = SPECIAL + sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: place for place, token in enumerate(tokens)}, [], unk_token="<unk>"))
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    _save(folder / "tokenizer_config.json", _tokenizer_config())
    _save(folder / "config.json", _config(vocabulary=(len(tokens) + 63) // 64 * 64))
    _save(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2})


def _save(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1))


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "model_max_length": CONTEXT,
        "chat_template": TEMPLATE,
    }


def _config(*, vocabulary: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "vocab_size": vocabulary,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "initializer_range": 0.02,
    }


if __name__ == "__main__":
    write(Path(sys.argv[1]))
