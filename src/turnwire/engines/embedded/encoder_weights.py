"""Turns a BERT sentence encoder's published files (safetensors, vocabulary) into the GGUF file that llama.cpp loads.

Promise: weights are copied byte for byte, not rounded; the same input gives the same file. The published files are
read; none of their code is run.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import msgspec

__all__ = ["WeightsError", "write_encoder"]

_ALIGNMENT = 32
_STRING, _ARRAY, _UINT32, _INT32, _FLOAT32, _BOOL = 8, 9, 4, 5, 6, 7
_NORMAL, _CONTROL = 1, 3
_CONTROL_WORDS = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}

_OUTER = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm": "token_embd_norm",
}
_LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


class WeightsError(ValueError):
    """Weights that are not those of a BERT encoder in single precision."""


class _Tensor(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def write_encoder(weights: BinaryIO, config: bytes, words: Sequence[str], out: BinaryIO) -> None:
    """Write the GGUF file of an encoder that averages its tokens. `words` is the vocabulary in order of ids."""
    (size,) = struct.unpack("<Q", weights.read(8))
    header = msgspec.json.decode(weights.read(size))
    header.pop("__metadata__", None)
    tensors = msgspec.convert(header, dict[str, _Tensor])
    settings = msgspec.json.decode(config)
    named = _named(tensors, int(settings["num_hidden_layers"]))
    _write_header(out, settings, words, named)
    start = 8 + size
    for tensor in named.values():
        out.write(b"\0" * (-out.tell() % _ALIGNMENT))
        weights.seek(start + tensor.data_offsets[0])
        out.write(weights.read(tensor.data_offsets[1] - tensor.data_offsets[0]))


def _named(tensors: Mapping[str, _Tensor], layers: int) -> dict[str, _Tensor]:
    """The tensors under llama.cpp's names, in its order."""
    wanted: dict[str, str] = {}
    for theirs, ours in _OUTER.items():
        if theirs.endswith(".weight"):
            wanted[ours] = theirs
        else:
            wanted |= {f"{ours}.{part}": f"{theirs}.{part}" for part in ("weight", "bias")}
    for layer in range(layers):
        for theirs, ours in _LAYER.items():
            for part in ("weight", "bias"):
                wanted[f"blk.{layer}.{ours}.{part}"] = f"encoder.layer.{layer}.{theirs}.{part}"
    missing = [theirs for theirs in wanted.values() if theirs not in tensors or tensors[theirs].dtype != "F32"]
    if missing:
        raise WeightsError(f"no single-precision tensor {missing[0]}; these are not a BERT encoder's weights")
    return {ours: tensors[theirs] for ours, theirs in wanted.items()}


def _write_header(
    out: BinaryIO, settings: Mapping[str, Any], words: Sequence[str], named: Mapping[str, _Tensor]
) -> None:
    ids = {word: index for index, word in enumerate(words)}
    facts: list[tuple[str, int, Any]] = [
        ("general.architecture", _STRING, "bert"),
        ("general.name", _STRING, "all-MiniLM-L6-v2"),
        ("bert.context_length", _UINT32, settings["max_position_embeddings"]),
        ("bert.embedding_length", _UINT32, settings["hidden_size"]),
        ("bert.feed_forward_length", _UINT32, settings["intermediate_size"]),
        ("bert.block_count", _UINT32, settings["num_hidden_layers"]),
        ("bert.attention.head_count", _UINT32, settings["num_attention_heads"]),
        ("bert.attention.layer_norm_epsilon", _FLOAT32, settings["layer_norm_eps"]),
        ("bert.attention.causal", _BOOL, False),
        ("bert.pooling_type", _UINT32, 1),
        ("tokenizer.ggml.model", _STRING, "bert"),
        ("tokenizer.ggml.token_type_count", _UINT32, settings["type_vocab_size"]),
        ("tokenizer.ggml.tokens", _STRING, [_spelled(word) for word in words]),
        ("tokenizer.ggml.token_type", _INT32, [_CONTROL if word in _CONTROL_WORDS else _NORMAL for word in words]),
        ("tokenizer.ggml.bos_token_id", _UINT32, ids["[CLS]"]),
        ("tokenizer.ggml.cls_token_id", _UINT32, ids["[CLS]"]),
        ("tokenizer.ggml.eos_token_id", _UINT32, ids["[SEP]"]),
        ("tokenizer.ggml.seperator_token_id", _UINT32, ids["[SEP]"]),
        ("tokenizer.ggml.unknown_token_id", _UINT32, ids["[UNK]"]),
        ("tokenizer.ggml.padding_token_id", _UINT32, ids["[PAD]"]),
        ("tokenizer.ggml.mask_token_id", _UINT32, ids["[MASK]"]),
    ]
    out.write(b"GGUF" + struct.pack("<IQQ", 3, len(named), len(facts)))
    for key, kind, value in facts:
        out.write(_text(key))
        if isinstance(value, list):
            out.write(struct.pack("<IIQ", _ARRAY, kind, len(value)) + b"".join(_scalar(kind, one) for one in value))
        else:
            out.write(struct.pack("<I", kind) + _scalar(kind, value))
    offset = 0
    for name, tensor in named.items():
        sizes = tensor.shape[::-1]
        out.write(_text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, 0, offset))
        used = tensor.data_offsets[1] - tensor.data_offsets[0]
        offset += used + (-used % _ALIGNMENT)


def _spelled(word: str) -> str:
    """llama.cpp marks the start of a word where WordPiece marks the continuation."""
    if word.startswith("[") and word.endswith("]"):
        return word
    return word.removeprefix("##") if word.startswith("##") else f"\N{LOWER ONE EIGHTH BLOCK}{word}"


def _text(value: str) -> bytes:
    data = value.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _scalar(kind: int, value: Any) -> bytes:
    if kind == _STRING:
        return _text(value)
    return struct.pack("<" + {_UINT32: "I", _INT32: "i", _FLOAT32: "f", _BOOL: "?"}[kind], value)
