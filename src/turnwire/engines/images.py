"""Images on their way to engines that take prompts: as a URL, as the prompt's text around them, as a trial.

Promise: sans-IO. A prompt that an engine gets as text has the control tokens of the ids it was made from, and no
others: what content spells never becomes one on the way.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Protocol

from turnwire.engines.interface import EngineError
from turnwire.turns import ImageBlock, Note

__all__ = ["PromptTokenizer", "as_text", "image_url", "retokenized", "sample_image"]


class PromptTokenizer(Protocol):
    """The part of a tokenizer that turns a prompt into text and back."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str: ...

    @property
    def special_tokens(self) -> dict[str, int]: ...


def image_url(image: ImageBlock) -> str:
    """An image as a URL, inline ones as data."""
    return image.url or f"data:{image.media_type or 'image/png'};base64,{image.data}"


def as_text(tokenizer: PromptTokenizer, ids: Sequence[int]) -> tuple[str, bool]:
    """The text of a prompt, and whether its tokens are `ids` again. EngineError where they would hold other control
    tokens: some content spells one."""
    text = tokenizer.decode(ids)
    again = tokenizer.encode(text)
    special = frozenset(tokenizer.special_tokens.values())
    if again != list(ids) and [each for each in again if each in special] != [each for each in ids if each in special]:
        raise EngineError(
            "invalid_request",
            "the engine takes this prompt as text, and some of the content spells a control token of the model; leave "
            "that out, or serve with --content-control allow",
        )
    return text, again == list(ids)


def retokenized() -> Note:
    """The note of a prompt whose text is tokenized otherwise than before."""
    return Note("engine.images_as_text", "With images the engine tokenizes the prompt, and here not as it was written.")


def sample_image(side: int = 64) -> str:
    """A grey square, as a URL, to ask a server whether it sees."""
    rows = (b"\0" + b"\x80" * 3 * side) * side
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()
