"""What many rooms ask of a conversation's messages: how many turns, characters and bytes they have, which images.

Promise: `message_facts` gives equal answers for equal messages; of a conversation that went on, only the new messages
are looked at. What is kept is bounded, and may be shared by threads.
"""

from __future__ import annotations

import sys
from hashlib import blake2b

import msgspec

from turnwire.conventions import without_billing
from turnwire.conversation_memory import ConversationMemory
from turnwire.turns import Block, ImageBlock, Message, ReasoningBlock, TextBlock, ToolResultBlock

__all__ = ["MessageFacts", "message_facts"]

_MOST_BYTES = 16 * 1024 * 1024
_BLOCK = 160  # bytes of a block beside its text


def _named(question: Message | None) -> str:
    return blake2b(msgspec.msgpack.encode(question), digest_size=12).hexdigest()


class MessageFacts(msgspec.Struct, frozen=True, gc=False):
    """`turns` counts assistant turns, of which adjacent messages are one, and `characters` those of the text that every
    template shows: all but the model's. `images` are in the order of the prompt, `size` is roughly the bytes. `answers`
    are the places of assistant messages, `thoughtful` of those with thoughts; the running tool loop begins at `loop`,
    after the last user message that brings no results; `opening` names the first user message. `silent`: some message
    holds nothing. `plain`: a system text perhaps, then questions or single results and answers by turns, with nothing
    in them that prompts leave out."""

    messages: tuple[Message, ...] = ()
    turns: int = 0
    characters: int = 0
    images: tuple[ImageBlock, ...] = ()
    size: int = 0
    answers: tuple[int, ...] = ()
    thoughtful: tuple[int, ...] = ()
    loop: int = 0
    opening: str = _named(None)
    silent: bool = False
    plain: bool = True

    @property
    def turns_before(self) -> int:
        """The assistant turns before the one that is asked for, which may be begun already."""
        return self.turns - 1 if self.messages and self.messages[-1].role == "assistant" else self.turns


_NOTHING = MessageFacts()


def _learnt(before: MessageFacts | None, messages: tuple[Message, ...]) -> MessageFacts:
    known = before or _NOTHING
    start = len(known.messages)
    last = messages[start - 1].role if start else ""
    turns, characters, size = known.turns, known.characters, known.size
    loop, opening, silent, plain = known.loop, known.opening, known.silent, known.plain
    images: list[ImageBlock] = []
    answers: list[int] = []
    thoughtful: list[int] = []
    for place, message in enumerate(messages[start:], start):
        kinds = set(map(type, message.blocks))
        size += sum(map(_bytes, message.blocks))
        silent = silent or not kinds
        plain = plain and _is_plain(message, last)
        if ImageBlock in kinds or ToolResultBlock in kinds:
            images += message.images
        if message.role == "user" and opening == _NOTHING.opening:
            opening = _named(message)
        if message.role == "assistant":
            answers.append(place)
            if ReasoningBlock in kinds:
                thoughtful.append(place)
            turns += last != "assistant"
        else:
            characters += _shown(message)
            if message.role == "user" and ToolResultBlock not in kinds:
                loop = place + 1
        last = message.role
    return MessageFacts(
        messages,
        turns,
        characters,
        known.images + tuple(images),
        size,
        known.answers + tuple(answers),
        known.thoughtful + tuple(thoughtful),
        loop,
        opening,
        silent,
        plain,
    )


def _is_plain(message: Message, last: str) -> bool:
    """Whether a message after one of the role `last` is as most are; it may say no without need."""
    role, blocks = message.role, message.blocks
    if not blocks or role == last:
        return False
    if role == "assistant":
        return True
    first = blocks[0]
    if len(blocks) > 1 or role == "developer":
        return False
    if type(first) is TextBlock:
        return bool(first.text) and (role == "user" or (not last and without_billing(first.text) == first.text))
    return type(first) is ToolResultBlock and not first.references and role == "user"


def _shown(message: Message) -> int:
    """The characters of a message that is not the model's, in words and results."""
    count = 0
    for block in message.blocks:
        if type(block) is TextBlock:
            count += len(block.text)
        elif type(block) is ToolResultBlock:
            count += sum([len(part.text) for part in block.content if type(part) is TextBlock])
    return count


def _bytes(block: Block) -> int:
    """Roughly the bytes of a block."""
    if type(block) is TextBlock:
        return _BLOCK + sys.getsizeof(block.text)
    total = _BLOCK
    for field in ("text", "seal", "arguments", "data", "payload"):
        total += sys.getsizeof(getattr(block, field, None) or "")
    for part in getattr(block, "content", ()):
        total += _BLOCK + sys.getsizeof(getattr(part, "text", None) or getattr(part, "data", ""))
    return total


# One for the process: what is asked about messages here is asked there too.
_FACTS: ConversationMemory[MessageFacts] = ConversationMemory(_learnt, max_bytes=_MOST_BYTES)
message_facts = _FACTS.of
