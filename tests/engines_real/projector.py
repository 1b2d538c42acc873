"""Writes a vision encoder of random weights for llama.cpp (`--mmproj`), beside a real language model.

What such a model says of a picture is nonsense; that the picture is decoded, encoded and read at its place in the
prompt is llama.cpp's own doing.
"""

from __future__ import annotations

import array
import random
import struct
from pathlib import Path

__all__ = ["PATCHES", "write_projector"]

WIDTH, WIDE, HEADS, LAYERS, SIDE, PATCH = 32, 64, 2, 2, 64, 16
PATCHES = (SIDE // PATCH) ** 2
_UINT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 6, 7, 8, 9


def write_projector(path: Path, width: int) -> None:
    """A LLaVA-like encoder for a language model whose states are `width` numbers wide; an image is `PATCHES` tokens."""
    shapes: dict[str, tuple[int, ...]] = {
        "v.patch_embd.weight": (WIDTH, 3, PATCH, PATCH),
        "v.position_embd.weight": (PATCHES, WIDTH),
        "mm.0.weight": (WIDTH, WIDTH),
        "mm.0.bias": (WIDTH,),
        "mm.2.weight": (width, WIDTH),
        "mm.2.bias": (width,),
    }
    for layer in (f"v.blk.{number}" for number in range(LAYERS)):
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            shapes |= {f"{layer}.{part}.weight": (WIDTH, WIDTH), f"{layer}.{part}.bias": (WIDTH,)}
        for part in ("ln1", "ln2"):
            shapes |= {f"{layer}.{part}.weight": (WIDTH,), f"{layer}.{part}.bias": (WIDTH,)}
        shapes |= {f"{layer}.ffn_up.weight": (WIDE, WIDTH), f"{layer}.ffn_up.bias": (WIDE,)}
        shapes |= {f"{layer}.ffn_down.weight": (WIDTH, WIDE), f"{layer}.ffn_down.bias": (WIDTH,)}
    facts: list[tuple[str, int, object]] = [
        ("general.architecture", _STRING, "clip"),
        ("general.file_type", _UINT32, 0),
        ("clip.has_vision_encoder", _BOOL, True),
        ("clip.projector_type", _STRING, "mlp"),
        ("clip.use_gelu", _BOOL, True),
        ("clip.vision.image_size", _UINT32, SIDE),
        ("clip.vision.patch_size", _UINT32, PATCH),
        ("clip.vision.embedding_length", _UINT32, WIDTH),
        ("clip.vision.feed_forward_length", _UINT32, WIDE),
        ("clip.vision.block_count", _UINT32, LAYERS),
        ("clip.vision.attention.head_count", _UINT32, HEADS),
        ("clip.vision.attention.layer_norm_epsilon", _FLOAT32, 1e-6),
        ("clip.vision.projection_dim", _UINT32, width),
        ("clip.vision.image_mean", _ARRAY, (0.5, 0.5, 0.5)),
        ("clip.vision.image_std", _ARRAY, (0.5, 0.5, 0.5)),
    ]
    chance = random.Random(7)
    with path.open("wb") as out:
        out.write(b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(facts)))
        for key, kind, value in facts:
            out.write(_text(key) + struct.pack("<I", kind) + _value(kind, value))
        at = 0
        for name, shape in shapes.items():
            count = _count(shape)
            out.write(_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], 0, at))
            at += -(-4 * count // 32) * 32
        for shape in shapes.values():
            out.write(b"\0" * (-out.tell() % 32))
            out.write(array.array("f", (chance.gauss(0, 0.05) for _ in range(_count(shape)))).tobytes())


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def _value(kind: int, value: object) -> bytes:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, tuple):
        return struct.pack(f"<IQ{len(value)}f", _FLOAT32, len(value), *value)
    return struct.pack({_UINT32: "<I", _FLOAT32: "<f", _BOOL: "<?"}[kind], value)
