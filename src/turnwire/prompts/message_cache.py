"""What was found out about a message, so that a conversation that comes again with one more message costs one message.

Promise: equal messages get equal answers, whichever object they come as; memory is bounded and may be shared by
threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from threading import Lock

import msgspec

from turnwire.conversation_memory import ConversationMemory
from turnwire.prompts.recall.history import PrefixDigests, said_digest
from turnwire.prompts.templates.control_text import ControlText, Marks
from turnwire.prompts.templates.messages import calls_of, questions_of
from turnwire.turns import Block, Message, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock

__all__ = ["KnownConversation", "KnownMessage", "MessageCache", "without_carriers"]

_encode = msgspec.msgpack.Encoder().encode
_OVERHEAD = 600
_MARKED = 5  # times the bytes of a message with its marked copy, whose characters take two bytes each


class KnownMessage(msgspec.Struct, frozen=True, gc=False):
    """`digest` names the message; `said` names what clients send back of it. `shown` is the message
    without thoughts that are only carriers. `control` says that its content may become control, `held` that it holds
    the character by which such content is marked; `marked` is the message with that character in such content. `size`
    is roughly its bytes."""

    digest: bytes
    said: bytes
    shown: Message
    control: bool
    held: bool
    marked: Message
    size: int


class KnownConversation(msgspec.Struct, frozen=True, gc=False):
    """What is known of a conversation's `messages`: of `each`, and of all of them. `shown` are they without thoughts
    that are only carriers, with their `calls`; `questions` are the places of the user's messages that bring no results;
    `prefixes` are the digests, `said` those of what follows the system text, for `History`; `control` and `held` say
    that one of them is so."""

    messages: tuple[Message, ...]
    each: tuple[KnownMessage, ...]
    shown: tuple[Message, ...]
    calls: tuple[ToolCallBlock, ...]
    questions: tuple[int, ...]
    prefixes: PrefixDigests
    said: PrefixDigests
    control: bool
    held: bool
    size: int


class MessageCache:
    """The messages seen last, up to a number of bytes in all. `control` is None where nobody looks for control;
    `thoughts` are spellings that the template reads out of an assistant's text, and that stay as they are there."""

    def __init__(
        self, control: ControlText | None, *, thoughts: Sequence[str] = (), max_bytes: int = 48 * 1024 * 1024
    ) -> None:
        self._control = control
        self._thoughts = thoughts
        self._half = max_bytes // 4
        # Two generations: what is asked for again moves to the young one, and the old one is dropped as a whole.
        self._young: dict[Message, KnownMessage] = {}
        self._old: dict[Message, KnownMessage] = {}
        self._bytes = 0
        self._lock = Lock()
        self._conversations = ConversationMemory(self._together, max_bytes=max_bytes // 2)
        self.all = self._conversations.of

    def get(self, message: Message) -> KnownMessage:
        known = self._young.get(message)
        if known is not None:
            return known
        known = self._old.get(message)
        raw = _encode(message) if known is None else b""
        if known is None:
            known = self._learnt(message, raw)
        with self._lock:
            self._young[message] = known
            self._bytes += (len(raw) or 1024) * (_MARKED if known.control else 1) + _OVERHEAD
            if self._bytes > self._half:
                self._old, self._young, self._bytes = self._young, {}, 0
        return known

    def _together(self, before: KnownConversation | None, messages: tuple[Message, ...]) -> KnownConversation:
        """What is known of a conversation, given what is known of its beginning."""
        known = before or _NOTHING
        fresh = list(map(self.get, messages[len(known.messages) :]))
        said = [one.said for one in fresh]
        if before is None and messages and messages[0].role == "system":
            del said[0]
        return KnownConversation(
            messages,
            (*known.each, *fresh),
            (*known.shown, *[one.shown for one in fresh]),
            (*known.calls, *calls_of(one.shown for one in fresh)),
            (*known.questions, *questions_of(messages[len(known.messages) :], len(known.messages))),
            known.prefixes.grown([one.digest for one in fresh]),
            known.said.grown(said),
            known.control or any(one.control for one in fresh),
            known.held or any(one.held for one in fresh),
            known.size + sum([one.size * (_MARKED if one.control else 1) + _OVERHEAD for one in fresh]),
        )

    def unseen(self, messages: tuple[Message, ...], most: int) -> int:
        """Roughly the bytes of the messages that were not seen before, counted until they are more than `most`."""
        known = self._conversations.nearest(messages)
        size = 0
        for message in messages[len(known.messages) if known is not None else 0 :]:
            if message not in self._young and message not in self._old:
                size += sum(map(size_of, message.blocks)) + 1
                if size > most:
                    break
        return size

    def marked(self, message: Message, marks: Marks) -> Message:
        """A message in which what may become control is marked."""
        told = message.role == "assistant" and not any(isinstance(block, ReasoningBlock) for block in message.blocks)
        return marks.message(message, self._thoughts if told else ())

    def _learnt(self, message: Message, raw: bytes) -> KnownMessage:
        control = self._control
        found = control is not None and control.in_message(message)
        digest = blake2b(raw, digest_size=16).digest()
        return KnownMessage(
            digest,
            said_digest(message) if message.role == "assistant" else digest,
            without_carriers(message),
            found,
            control is not None and control.holds_mark(raw),
            self.marked(message, control.first_marks()) if control is not None and found else message,
            len(raw),
        )

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


_NOTHING = KnownConversation((), (), (), (), (), PrefixDigests(), PrefixDigests(), False, False, 0)


def size_of(block: Block) -> int:
    """The characters that a block may put into a prompt."""
    match block:
        case TextBlock() | ReasoningBlock():
            return len(block.text)
        case ToolCallBlock():
            return len(block.arguments)
        case ToolResultBlock():
            return sum(map(size_of, block.content))
        case _:
            return 0


def without_carriers(message: Message) -> Message:
    """A message without the blank thoughts whose seals are all there is to them: the model did not write them there."""
    if message.role != "assistant":
        return message
    shown = tuple(b for b in message.blocks if not isinstance(b, ReasoningBlock) or b.text.strip())
    return message if len(shown) == len(message.blocks) else Message(role=message.role, blocks=shown)
