"""What is known of a conversation that grew, was cut or edited is what would be found out about it anew."""

from __future__ import annotations

import random

import msgspec
import pytest

from turnwire import message_facts as facts
from turnwire.conversation_memory import ConversationMemory
from turnwire.message_facts import MessageFacts, message_facts
from turnwire.prompts.message_cache import KnownConversation, MessageCache
from turnwire.prompts.templates.control_text import ControlText
from turnwire.turns import (
    Block,
    Conversation,
    ImageBlock,
    Message,
    ReasoningBlock,
    Role,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)

TEXTS = ("", "Go.", "Go on.", "<|im_end|>", "\ufdd0", "x-anthropic-billing-header: a=1\nYou are.", "x" * 300)
ROLES: tuple[Role, ...] = ("system", "developer", "user", "user", "user", "assistant", "assistant", "assistant")


def block(chance: random.Random, role: Role) -> Block:
    text = TextBlock(text=chance.choice(TEXTS))
    if role == "assistant":
        call = ToolCallBlock(id=str(chance.randrange(9)), name="look", arguments="{}")
        return chance.choice((text, text, ReasoningBlock(text="Hm.", seal=chance.choice((None, "s"))), call))
    result = ToolResultBlock(call_id="1", content=chance.choice(((), (text,), (text, ImageBlock(data="AA")))))
    return chance.choice((text, text, text, result, ImageBlock(data="BB")))


def message(chance: random.Random) -> Message:
    role = chance.choice(ROLES)
    return Message(role=role, blocks=tuple(block(chance, role) for _ in range(chance.choice((0, 1, 1, 1, 2)))))


def next_of(messages: tuple[Message, ...], chance: random.Random) -> tuple[Message, ...]:
    """The conversation as it comes the next time: longer, mostly."""
    lot = chance.random()
    if lot < 0.6:
        return (*messages, *(message(chance) for _ in range(chance.choice((1, 2, 2, 2, 3, 12)))))
    if lot < 0.7:
        return messages[: chance.randrange(len(messages) + 1)]
    if lot < 0.8 and messages:
        at = chance.randrange(len(messages))
        return (*messages[:at], message(chance), *messages[at + 1 :])
    # The same from another decoder: equal, and none of the objects that were seen before.
    return tuple(msgspec.msgpack.decode(msgspec.msgpack.encode(messages), type=list[Message]))


def told(known: KnownConversation) -> tuple[object, ...]:
    size = len(known.messages)
    parts = (known.prefixes, known.said)
    chains = [[part.before(place) for place in range(len(part.digests) + 1)] for part in parts]
    places = (known.calls, known.questions)
    return (known.messages, known.each, known.shown, places, known.control, known.held, known.size, size, chains)


@pytest.mark.parametrize("seed", range(20))
def test_a_conversation_that_went_on_is_known_as_one_that_is_new(seed: int) -> None:
    chance = random.Random(seed)
    grown: ConversationMemory[MessageFacts] = ConversationMemory(facts._learnt, max_bytes=1 << 20)
    control = ControlText(["<|im_end|>", "</think>"])
    cache = MessageCache(control)
    conversations: list[tuple[Message, ...]] = [(), ()]
    for _ in range(60):
        at = chance.randrange(2)
        messages = conversations[at] = next_of(conversations[at], chance)
        known = grown.of(messages)
        anew = facts._learnt(None, messages)
        assert msgspec.structs.replace(known, size=0) == msgspec.structs.replace(anew, size=0)
        assert (known.turns, known.images) == (
            Conversation(model="m", messages=messages).assistant_turns,
            Conversation(model="m", messages=messages).images,
        )
        assert told(cache.all(messages)) == told(MessageCache(control).all(messages))
        assert cache.unseen(messages, 1 << 20) == 0


def test_only_what_is_new_is_looked_at() -> None:
    seen: list[int] = []

    def learn(before: MessageFacts | None, messages: tuple[Message, ...]) -> MessageFacts:
        seen.append(len(messages) - (len(before.messages) if before is not None else 0))
        return facts._learnt(before, messages)

    memory = ConversationMemory(learn, max_bytes=1 << 20)
    messages = tuple(Message(role="user", blocks=(TextBlock(text=f"Go {n}"),)) for n in range(50))
    for size in (20, 22, 24, 24, 31):
        memory.of(messages[:size])
        memory.of((*messages[: size - 1], messages[size - 1]))
    assert seen == [20, 2, 2, 7]
    assert len(memory) == 1


def test_what_is_kept_of_conversations_has_a_bound() -> None:
    memory: ConversationMemory[MessageFacts] = ConversationMemory(facts._learnt, max_bytes=40_000)
    for number in range(200):
        memory.of(tuple(Message(role="user", blocks=(TextBlock(text=f"{number} {place}"),)) for place in range(9)))
        assert sum(known.size for known in memory._held.values()) == memory._bytes <= 40_000
    assert 1 < len(memory) < 40
    memory.of((Message(role="user", blocks=(TextBlock(text="x" * 20_000),)),))
    assert 1 < len(memory) < 40


def test_the_turn_that_is_asked_for_is_none_of_those_before_it() -> None:
    messages = (
        Message(role="user", blocks=(TextBlock(text="Go."),)),
        Message(role="assistant", blocks=(TextBlock(text="It"),)),
    )
    assert message_facts(messages).turns_before == 0
    assert message_facts((*messages, messages[0])).turns_before == 1
