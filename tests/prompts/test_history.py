"""The digest of what precedes a turn: equal where a client only did what clients do, different for any other change."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec
import pytest

from turnwire.prompts.prompt import HistoryKey
from turnwire.prompts.recall.history import History, PrefixDigests, said_digest
from turnwire.tool_sets import tool_set
from turnwire.turns import (
    Block,
    ImageBlock,
    Message,
    OpaqueBlock,
    ReasoningBlock,
    TextBlock,
    Tool,
    ToolCallBlock,
    ToolResultBlock,
)

CALL = ToolCallBlock(id="call_1-a", name="Write", arguments='{"path": "a", "size": 1}')


def said(role: str, *blocks: Block | str) -> Message:
    made = tuple(TextBlock(text=block) if isinstance(block, str) else block for block in blocks)
    return Message(role=role, blocks=made)  # type: ignore[arg-type]


STORY = (
    said("system", "You are a clerk. It is 2026-01-02 10:11:12, account 12."),
    said("user", "Write it."),
    said("assistant", ReasoningBlock(text="Hm.", seal="tw1.x"), "Writing it.", CALL),
    said("user", ToolResultBlock(call_id="call_1-a", content=(TextBlock(text="ok"),))),
)
TOOLS = (Tool(name="Write", description="Writes."),)


def history(messages: Sequence[Message], tools: Sequence[Tool] = TOOLS) -> History:
    digests = [blake2b(msgspec.msgpack.encode(message), digest_size=16).digest() for message in messages]
    said = [said_digest(m) if m.role == "assistant" else digest for m, digest in zip(messages, digests, strict=True)]
    start = 1 if messages and messages[0].role == "system" else 0
    return History(messages, digests, PrefixDigests(said[start:]), tool_set(tools))


def key(messages: Sequence[Message], tools: Sequence[Tool] = TOOLS) -> HistoryKey:
    return history(messages, tools).coming()


def changed(place: int, *blocks: Block | str) -> list[Message]:
    return [*STORY[:place], said(STORY[place].role, *blocks), *STORY[place + 1 :]]


@pytest.mark.parametrize(
    "blocks",
    [
        ("Writing it.", CALL),
        (ReasoningBlock(text="", redacted=True, seal="tw1.y"), "Writing it.", CALL),
        (ReasoningBlock(text="Hm."), "Writing ", "it.\n", CALL, ReasoningBlock(text="", seal="tw1.z")),
        ("Writing it.", msgspec.structs.replace(CALL, id="call1a")),
        ("Writing it.", msgspec.structs.replace(CALL, arguments='{"size":1,"path":"a"}')),
    ],
)
def test_what_clients_do_to_a_turn_changes_nothing(blocks: tuple[Block | str, ...]) -> None:
    assert key(changed(2, *blocks)) == key(STORY)


@pytest.mark.parametrize(
    "messages",
    [
        changed(0, "You are a poet. It is 2026-01-02 10:11:12, account 12."),
        changed(0, "You are a clerk. It is 2026-01-02 10:11:12, account 13."),
        changed(1, "Write it!"),
        changed(1, "Write it.", ImageBlock(media_type="image/png", data="AAAA")),
        changed(2, "Not writing it.", CALL),
        changed(2, "Writing it."),
        changed(2, "Writing it.", msgspec.structs.replace(CALL, id="call_2")),
        changed(2, "Writing it.", msgspec.structs.replace(CALL, arguments='{"path": "b", "size": 1}')),
        changed(2, "Writing it.", CALL, OpaqueBlock(wire_type="x", payload="{}")),
        changed(3, ToolResultBlock(call_id="call_1-a", content=(TextBlock(text="failed"),))),
        STORY[:3],
        STORY[1:],
        [STORY[0], said("user", "Hello."), *STORY[1:]],
    ],
)
def test_any_other_change_makes_another_history(messages: Sequence[Message]) -> None:
    own, other = key(STORY), key(messages)
    assert own.strict != other.strict
    assert not set(own.loose) & set(other.loose)


def test_tools_and_the_clock_count_only_where_words_alone_would_find_the_turn() -> None:
    own = key(STORY)
    for other in (
        key(STORY, (Tool(name="Write", description="Writes secrets."),)),
        key(changed(0, "You are a clerk. It is 2026-01-03 09:00:00, account 12.")),
    ):
        assert own.strict != other.strict
        assert own.loose == other.loose


def test_a_user_message_that_is_taken_back_is_forgiven_to_calls() -> None:
    aside = said("user", "<context that moves>")
    asked = key([*STORY, aside])
    then = history([*STORY, said("assistant", "Done.", CALL), aside])
    assert then.before(len(STORY)).loose[0] in asked.loose
    assert then.before(len(STORY)).strict != asked.strict


def test_a_turn_is_found_at_its_own_place() -> None:
    later = history([*STORY, said("assistant", "Done."), said("user", "Thanks.")])
    assert later.before(len(STORY)) == key(STORY)
    keys = [later.before(place).strict for place in range(1, len(STORY) + 3)]
    assert len(set(keys)) == len(keys)


def test_a_turn_that_only_thought_leaves_no_trace() -> None:
    thought = said("assistant", ReasoningBlock(text="Hm."))
    assert key([*STORY, thought]).strict == key(STORY).strict
