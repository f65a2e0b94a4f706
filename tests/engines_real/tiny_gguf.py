"""Writes a llama model of random weights: 1.5 MB that load in a tenth of a second and speak nonsense.

A real small model would be a hundred times the size for the same server behaviour. Run by the engine's own venv:
`python tiny_gguf.py PATH`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np

WIDTH, FEED_FORWARD, HEADS, LAYERS, CONTEXT = 128, 256, 4, 2, 2048
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
SPACE, NEWLINE = "\u0120", "\u010a"  # as byte-level BPE spells " " and "\n"
# ASCII alone: a token that is half of a character makes the server answer 500.
LETTERS = [chr(code) for code in range(33, 127)] + [SPACE, NEWLINE]
PAIRS = [(left, right) for left in (SPACE, *"aeiou") for right in "nrstlmdc"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    tokens = SPECIAL + LETTERS + [left + right for left, right in PAIRS]
    _shape(writer, len(tokens))
    _tokenizer(writer, tokens)
    _weights(writer, len(tokens), np.random.default_rng(0))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _shape(writer: gguf.GGUFWriter, vocabulary: int) -> None:
    writer.add_name("tiny-random")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(vocabulary)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def _tokenizer(writer: gguf.GGUFWriter, tokens: list[str]) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    kinds = [gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens]
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{left} {right}" for left, right in PAIRS])
    writer.add_unk_token_id(SPECIAL.index("<unk>"))
    writer.add_bos_token_id(SPECIAL.index("<s>"))
    writer.add_eos_token_id(SPECIAL.index("</s>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def _weights(writer: gguf.GGUFWriter, vocabulary: int, random: np.random.Generator) -> None:
    def matrix(rows: int, columns: int, spread: float = 0.05) -> np.ndarray:
        return (random.standard_normal((rows, columns)) * spread).astype(np.float32)

    ones = np.ones(WIDTH, np.float32)
    output = matrix(vocabulary, WIDTH, 0.4)
    output[: len(SPECIAL)] = 0  # special tokens are unlikely, so that answers get long
    writer.add_tensor("token_embd.weight", matrix(vocabulary, WIDTH, 0.2))
    writer.add_tensor("output.weight", output)
    writer.add_tensor("output_norm.weight", ones)
    for block in (f"blk.{layer}" for layer in range(LAYERS)):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{block}.{name}.weight", ones)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"{block}.{name}.weight", matrix(WIDTH, WIDTH))
        for name in ("ffn_gate", "ffn_up"):
            writer.add_tensor(f"{block}.{name}.weight", matrix(FEED_FORWARD, WIDTH))
        writer.add_tensor(f"{block}.ffn_down.weight", matrix(WIDTH, FEED_FORWARD))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
