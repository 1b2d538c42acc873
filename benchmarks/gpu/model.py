"""A decoder of a given shape with random weights, whose keys and values lie in pages.

Promise: the arithmetic is that of a grouped-query decoder (RMS norm, rotary positions, SwiGLU); what it says has no
meaning. Tokens that the cache holds are not computed again.
"""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right

from benchmarks.gpu.blocks import BLOCK, PrefixCache

CHUNK = 8192


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of the decoder; by default those of an 8B model."""

    layers: int = 36
    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head: int = 128
    feed_forward: int = 12288
    vocabulary: int = 151_936

    def parameters(self) -> int:
        """How many numbers the weights hold."""
        attention = self.hidden * self.head * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.feed_forward) + 2 * self.vocabulary * self.hidden


SHAPES = {"8b": Shape(), "tiny": Shape(layers=2, hidden=64, heads=4, kv_heads=2, head=16, feed_forward=128)}


class Decoder:
    """Weights and pages on one device."""

    def __init__(self, shape: Shape, blocks: int) -> None:
        self.shape = shape
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        kind = torch.bfloat16 if self.device == "cuda" else torch.float32
        torch.manual_seed(1)

        def weight(rows: int, columns: int) -> torch.Tensor:
            return torch.randn(rows, columns, device=self.device, dtype=kind) * rows**-0.5

        wide = shape.heads * shape.head
        self.embedding = weight(shape.vocabulary, shape.hidden)
        self.unembedding = weight(shape.hidden, shape.vocabulary)
        self.layers = [
            (
                weight(shape.hidden, wide + 2 * shape.kv_heads * shape.head),
                weight(wide, shape.hidden),
                weight(shape.hidden, 2 * shape.feed_forward),
                weight(shape.feed_forward, shape.hidden),
            )
            for _ in range(shape.layers)
        ]
        pages = (shape.layers, 2, blocks * BLOCK, shape.kv_heads, shape.head)
        self.pages = torch.zeros(pages, device=self.device, dtype=kind)
        self.cache = PrefixCache(blocks)
        turns = 1.0 / (1e6 ** (torch.arange(0, shape.head, 2, device=self.device).float() / shape.head))
        angles = torch.outer(torch.arange(1 << 17, device=self.device).float(), turns)
        self.cos, self.sin = angles.cos().to(kind), angles.sin().to(kind)
        self.unit = torch.ones(shape.hidden, device=self.device, dtype=kind)

    @torch.inference_mode()
    def complete(self, prompt: list[int], forced: list[int] | None, count: int) -> tuple[list[int], int]:
        """The output ids and the number of prompt tokens that were not computed. `forced` ids are read in one pass, as
        if they had been sampled: the pages then hold what they would hold."""
        room = len(forced) if forced is not None else count
        table, held = self.cache.take(prompt, room)
        slots = self._slots(table)
        output = [self._read(prompt[held:], held, slots)]
        if forced is not None:
            self._read(forced, len(prompt), slots)
            output = list(forced)
        while len(output) < count and forced is None:
            output.append(self._read(output[-1:], len(prompt) + len(output) - 1, slots))
        self.cache.keep(table, prompt + (output if forced is not None else output[:-1]))
        return output, held

    def _slots(self, table: list[int]) -> torch.Tensor:
        first = torch.tensor(table, device=self.device) * BLOCK
        return (first[:, None] + torch.arange(BLOCK, device=self.device)).flatten()

    def _read(self, ids: list[int], position: int, slots: torch.Tensor) -> int:
        """Compute `ids` from `position` on; the most likely next id."""
        state = self.unit
        for start in range(0, len(ids), CHUNK):
            chunk = torch.tensor(ids[start : start + CHUNK], device=self.device)
            state = self._chunk(chunk, position + start, slots)
        return int((state[-1] @ self.unembedding).argmax())

    def _chunk(self, ids: torch.Tensor, position: int, slots: torch.Tensor) -> torch.Tensor:
        shape, new = self.shape, len(ids)
        end = position + new
        x = self.embedding[ids]
        cos, sin = self.cos[position:end, None], self.sin[position:end, None]
        wide, narrow = shape.heads * shape.head, shape.kv_heads * shape.head
        mask = causal_lower_right(new, end)
        for number, (into, out, up, down) in enumerate(self.layers):
            mixed = F.rms_norm(x, (shape.hidden,), self.unit) @ into
            q, k, v = mixed.split([wide, narrow, narrow], dim=-1)
            q = _rotate(q.view(new, shape.heads, shape.head), cos, sin)
            keys, values = self.pages[number]
            keys[slots[position:end]] = _rotate(k.view(new, shape.kv_heads, shape.head), cos, sin)
            values[slots[position:end]] = v.view(new, shape.kv_heads, shape.head)
            repeat = shape.heads // shape.kv_heads
            past = keys[slots[:end]].repeat_interleave(repeat, dim=1)
            said = values[slots[:end]].repeat_interleave(repeat, dim=1)
            found = F.scaled_dot_product_attention(
                q.transpose(0, 1)[None], past.transpose(0, 1)[None], said.transpose(0, 1)[None], attn_mask=mask
            )
            x = x + found[0].transpose(0, 1).reshape(new, wide) @ out
            gate, value = (F.rms_norm(x, (shape.hidden,), self.unit) @ up).chunk(2, dim=-1)
            x = x + (F.silu(gate) * value) @ down
        return F.rms_norm(x, (shape.hidden,), self.unit)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
