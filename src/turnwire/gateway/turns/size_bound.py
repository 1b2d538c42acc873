"""What a conversation costs at least, known before it is rendered.

Promise: a lower bound. No token spells more characters than the longest of its vocabulary, so a text of so many
characters has at least so many tokens; whitespace at the ends, which templates trim, does not count.
"""

from __future__ import annotations

from turnwire.prompts.prompt import Tokenizer
from turnwire.turns import Block, Conversation, TextBlock, ToolResultBlock

__all__ = ["SizeBound"]

_USUAL = 4
"""Characters of a token in usual text: below that many for each token of the window, nothing is looked at."""


class SizeBound:
    """The bound of one model."""

    def __init__(self, tokenizer: Tokenizer, window: int) -> None:
        self._tokenizer = tokenizer
        self._window = window
        self._longest: int | None = None

    def looks_large(self, conversation: Conversation) -> bool:
        """Whether the conversation may be over the window at all: a cheap question."""
        return self._size(conversation) > self._window * _USUAL

    def least_tokens(self, conversation: Conversation) -> int:
        """How many tokens the conversation has at least. The first question goes through the whole vocabulary."""
        if self._longest is None:
            decode = self._tokenizer.decode
            self._longest = max(len(decode((token,))) for token in range(self._tokenizer.vocab_size))
        return self._size(conversation) // max(self._longest, 1)

    def _size(self, conversation: Conversation) -> int:
        return sum(_characters(block) for message in conversation.messages for block in message.blocks)


def _characters(block: Block) -> int:
    if isinstance(block, TextBlock):
        return len(block.text.strip())
    if isinstance(block, ToolResultBlock):
        return sum(_characters(part) for part in block.content)
    return 0
