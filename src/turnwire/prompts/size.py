"""How many tokens a conversation must have, known from its size alone.

Promise: `minimum_tokens` never says more than the prompt will have, and costs microseconds whatever the size: it counts
characters, and words only where characters leave a doubt and only until there is none. 0 means that nothing is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

import msgspec

from turnwire.message_facts import message_facts
from turnwire.turns import Conversation, TextBlock, ToolResultBlock

__all__ = ["MOST_READ", "Density", "SizedTokenizer", "may_exceed", "minimum_tokens"]

_WORD_END = re.compile("[A-Za-z] ")
_NOT_BLANK = re.compile(r"\S")
_SLICE = 65_536
MOST_READ = 1 << 20
_COMPOSED = 4  # characters that a normal form makes one of, at most; ASCII stays as it is
_DOUBTFUL = 3  # a conversation with fewer characters than this for each token fits, if it is made of words


class Density(msgspec.Struct, frozen=True):
    """How much text a token can hold: `characters` at most, more where a normal form is `composed` first; and never two
    ends of a word (`words`)."""

    characters: int
    composed: bool
    words: bool


class SizedTokenizer(Protocol):
    """A tokenizer that knows how much its tokens hold; None where that has no bound."""

    @property
    def density(self) -> Density | None: ...


def may_exceed(conversation: Conversation, tokens: int) -> bool:
    """Whether the conversation is long enough for `minimum_tokens` to be worth asking."""
    return message_facts(conversation.messages).characters > _DOUBTFUL * tokens


def minimum_tokens(
    conversation: Conversation, tokenizer: SizedTokenizer, *, enough: int, most_read: int = MOST_READ
) -> int:
    """A lower bound on the prompt's tokens, meant to tell whether there are more than `enough`. It counts what every
    template shows: system and user text and results, without blanks at their ends. Words are counted in the first
    `most_read` characters."""
    density = tokenizer.density
    if density is None:
        return 0
    fewest = characters = 0
    for text in _texts(conversation):
        if len(text) < density.characters:
            continue
        start, end = _trimmed(text)
        characters += end - start
        size = end - start
        if density.composed and not text.isascii():
            size = max(size // _COMPOSED, _ascii(text, (enough + 1) * density.characters) - (len(text) - size))
        fewest += size // density.characters
    if fewest > enough or not density.words or characters < _DOUBTFUL * enough:
        return fewest
    return max(fewest, _words(conversation, enough, most_read))


def _ascii(text: str, enough: int) -> int:
    """How many characters of the text no normal form can join, counted until there are `enough`, or until the text
    turns out to be one in which this says little."""
    count = 0
    for start in range(0, len(text), _SLICE):
        count += len(text[start : start + _SLICE].encode("ascii", "ignore"))
        if count >= enough or 4 * count < 3 * start:
            break
    return count


def _words(conversation: Conversation, enough: int, most_read: int) -> int:
    """Word ends in the first `most_read` characters, counted until there are more than `enough`."""
    words, left = 0, most_read
    for text in _texts(conversation):
        for start in range(0, min(len(text), left), _SLICE):
            words += len(_WORD_END.findall(text, start, start + _SLICE))
            if words > enough:
                return words
        left -= min(len(text), left)
    return words


def _trimmed(text: str) -> tuple[int, int]:
    """Where the text begins and ends without blanks; it is not copied."""
    first = _NOT_BLANK.search(text)
    if first is None:
        return 0, 0
    reach = 64
    while not (end := text[-reach:].rstrip()):
        reach *= 4
    return first.start(), max(0, len(text) - reach) + len(end)


def _texts(conversation: Conversation) -> Iterator[str]:
    for message in conversation.messages:
        if message.role == "assistant":
            continue
        for block in message.blocks:
            if type(block) is TextBlock:
                yield block.text
            elif type(block) is ToolResultBlock:
                for part in block.content:
                    if type(part) is TextBlock:
                        yield part.text
