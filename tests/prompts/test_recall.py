"""Recall: the exact turn behind a message, whatever the client did to the writing, and nothing where it was changed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from turnwire.prompts.notes import NOTES
from turnwire.prompts.prompt import HistoryKey, RecalledTurn
from turnwire.prompts.recall import recall as recall_module
from turnwire.prompts.recall.recall import RecallCache, TurnRecall, stored_turn, turn_keys, turn_space
from turnwire.prompts.recall.seals import Sealer
from turnwire.prompts.recall.store import MemoryTurnStore
from turnwire.prompts.recall.witness import Witness, content_mark, edits
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import (
    Block,
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Finished,
    Message,
    Note,
    ReasoningBlock,
    SealCarried,
    TextBlock,
    ToolCallBlock,
    ToolCallClosed,
    Usage,
)

TOKENIZER = load_tokenizer()
SEALER = Sealer([bytes(32)])
HISTORY = HistoryKey(strict=b"strict", loose=(b"loose", b"loose without an aside"))
OTHER = HistoryKey(strict=b"another", loose=(b"other",))
ARGUMENTS = '{"path": "/a.py", "content": "x = 1  \\n\\ty\\n", "limit": "5000", "deep": {"b": false, "a": 1.0}}'
RAW = [
    (("reasoning", "I should write the file.\n"), "I should write the file.\n</think>"),
    (("text", "Writing it."), "\n\nWriting it."),
    (
        ("tool_call", "Write", ARGUMENTS, "call_1-a"),
        f'<tool_call>\n{{"name": "Write", "arguments": {ARGUMENTS}}}\n</tool_call>',
    ),
    (("reasoning", "Then read it."), "<think>Then read it.</think>"),
    (
        ("tool_call", "Read", '{"path":"/a.py"}', "call_2-b"),
        '<tool_call>{"name":"Read","arguments":{"path":"/a.py"}}</tool_call>',
    ),
    ((), "<|im_end|>"),
]


class Served:
    """A turn as the gateway would serve it: the events seen by the client, the seals, the stored record."""

    def __init__(self, raw: Sequence[tuple[tuple[str, ...], str]], turn_id: str = "turn1", tenant: str = "t") -> None:
        self.witness = Witness()
        sealing = SEALER.turn(turn_id, model="m", tenant=tenant, tail="<think>\n", shape=self.witness)
        self.blocks: list[Block] = []
        self.ids: list[int] = []
        self.calls: list[str] = []
        for index, (block, text) in enumerate(raw):
            ids = TOKENIZER.encode(text)
            self.ids += ids
            sealing.add(ids)
            self.witness.feed(_events(index, block))
            if block and block[0] == "reasoning":
                self.blocks.append(ReasoningBlock(text=block[1], seal=sealing.seal()))
            elif block and block[0] == "text":
                self.blocks.append(TextBlock(text=block[1]))
            elif block:
                self.blocks.append(ToolCallBlock(id=block[3], name=block[1], arguments=block[2]))
                self.calls.append(block[3])
        self.text = "".join(text for _, text in raw)
        trailing = sealing.finish()
        assert trailing is not None
        self.carrier = ReasoningBlock(text="", seal=trailing, redacted=True)

    @property
    def message(self) -> Message:
        return Message(role="assistant", blocks=(*self.blocks, self.carrier))

    def without_seals(self, *, thoughts: bool = False) -> Message:
        kept = [
            msgspec.structs.replace(block, seal=None) if isinstance(block, ReasoningBlock) else block
            for block in self.blocks
            if thoughts or not isinstance(block, ReasoningBlock)
        ]
        return Message(role="assistant", blocks=tuple(kept))

    def store_in(self, store: MemoryTurnStore, session: str = "s") -> None:
        keys = turn_keys(HISTORY, call_ids=self.calls, said=self.witness.said, session=session)
        turn = stored_turn(self.ids, self.text, self.witness.shape(last=True), tail="<think>\n")
        store.put(turn_space("t", "m"), keys, turn)


def _events(index: int, block: tuple[str, ...]) -> list[Event]:
    if not block:
        return []
    if block[0] == "tool_call":
        opened = BlockOpened(index, "tool_call", block[1], block[3])
        return [opened, BlockDelta(index, block[2]), ToolCallClosed(index, block[1], block[2], block[3])]
    kind = "text" if block[0] == "text" else "reasoning"
    half = len(block[1]) // 2
    return [
        BlockOpened(index, kind),
        BlockDelta(index, block[1][:half]),
        BlockDelta(index, block[1][half:]),
        BlockClosed(index, kind),
    ]


def recalled(
    message: Message,
    store: MemoryTurnStore | None = None,
    *,
    sealer: Sealer | None = SEALER,
    history: HistoryKey | None = HISTORY,
    **bound: str,
) -> tuple[RecalledTurn | None, list[str]]:
    names = {"tenant": "t", "model": "m", "session": "s"} | bound
    recall = TurnRecall(tokenizer=TOKENIZER, sealer=sealer, store=store, **names)  # type: ignore[arg-type]
    turn, notes = recall.recall(message, history)
    assert all(note.code in NOTES and note.message for note in notes)
    return turn, [note.code for note in notes]


def test_seals_alone_restore_the_turn() -> None:
    served = Served(RAW)
    turn, notes = recalled(served.message)
    assert turn is not None
    assert list(turn.ids) == served.ids
    assert (turn.text, turn.tail) == (served.text, "<think>\n")
    assert turn.complete
    assert notes == []


def rewritten(message: Message, change: str) -> Message:
    blocks = list(message.blocks)
    for place, block in enumerate(blocks):
        if isinstance(block, ToolCallBlock) and block.name == "Write":
            value = json.loads(block.arguments)
            if change == "compact":
                text = json.dumps(value, separators=(",", ":"))
            elif change == "ordered":
                text = json.dumps(dict(sorted(value.items())), indent=1)
            elif change == "defaults":
                text = json.dumps(
                    value | {"replace_all": False, "timeout": 120000, "note": None, "deep": value["deep"]}
                )
            elif change == "coerced":
                deep = {"b": "false", "a": 1}
                text = json.dumps(value | {"limit": 5000, "deep": deep, "content": "x = 1\n\ty\n"})
            else:
                text = json.dumps(block.arguments)
            blocks[place] = msgspec.structs.replace(block, arguments=text)
    return Message(role=message.role, blocks=tuple(blocks))


@pytest.mark.parametrize("change", ["compact", "ordered", "defaults", "coerced", "encoded twice"])
@pytest.mark.parametrize("way", ["seals", "store"])
def test_rewritten_arguments_still_recall(change: str, way: str) -> None:
    served = Served(RAW)
    store = MemoryTurnStore()
    served.store_in(store)
    message = served.message if way == "seals" else served.without_seals()
    turn, notes = recalled(rewritten(message, change), store if way == "store" else None)
    assert turn is not None
    assert list(turn.ids) == served.ids
    assert (turn.text, turn.tail) == (served.text, "<think>\n")
    assert notes == []


def test_blanks_dropped_thoughts_and_merged_text_still_recall() -> None:
    served = Served(
        [(("reasoning", "Hm."), "Hm.</think>"), (("text", "One. "), "One. "), (("text", "\n\nTwo."), "\n\nTwo.")]
    )
    merged = Message(
        role="assistant",
        blocks=(
            ReasoningBlock(text="", seal=served.blocks[0].seal, redacted=True),
            TextBlock(text="One.\nTwo."),
            served.carrier,
        ),  # type: ignore[union-attr]
    )
    turn, notes = recalled(merged)
    assert turn is not None
    assert list(turn.ids) == served.ids
    assert notes == []


CHANGES = {
    "text": lambda blocks: [TextBlock(text="Not writing it.") if isinstance(b, TextBlock) else b for b in blocks],
    "text cut": lambda blocks: [b for b in blocks if not isinstance(b, TextBlock)],
    "thought": lambda blocks: [
        msgspec.structs.replace(b, text="I should not.") if isinstance(b, ReasoningBlock) and b.text else b
        for b in blocks
    ],
    "call dropped": lambda blocks: [b for b in blocks if not (isinstance(b, ToolCallBlock) and b.name == "Read")],
    "call renamed": lambda blocks: [
        msgspec.structs.replace(b, name="Edit") if isinstance(b, ToolCallBlock) and b.name == "Read" else b
        for b in blocks
    ],
    "argument": lambda blocks: [
        msgspec.structs.replace(b, arguments='{"path":"/b.py"}')
        if isinstance(b, ToolCallBlock) and b.name == "Read"
        else b
        for b in blocks
    ],
    "argument dropped": lambda blocks: [
        msgspec.structs.replace(b, arguments="{}") if isinstance(b, ToolCallBlock) and b.name == "Read" else b
        for b in blocks
    ],
    "argument added": lambda blocks: [
        msgspec.structs.replace(b, arguments='{"path":"/a.py","why":"because"}')
        if isinstance(b, ToolCallBlock) and b.name == "Read"
        else b
        for b in blocks
    ],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", ["seals", "store"])
def test_edited_turns_are_refused(change: str, way: str) -> None:
    served = Served(RAW)
    store = MemoryTurnStore()
    served.store_in(store)
    message = served.message if way == "seals" else served.without_seals(thoughts=True)
    edited = Message(role="assistant", blocks=tuple(CHANGES[change](list(message.blocks))))
    part = {"text cut": "text", "call dropped": "calls", "call renamed": "name"}.get(change, change.split()[0])
    part = "arguments" if part == "argument" else part
    assert recalled(edited, store) == (None, [f"replay.edited.{part}"])


def test_a_lost_last_seal_leaves_the_leading_part() -> None:
    served = Served(RAW)
    turn, notes = recalled(Message(role="assistant", blocks=tuple(served.blocks)))
    assert turn is not None
    assert not turn.complete
    assert list(turn.ids) == served.ids[: len(turn.ids)]
    assert turn.text.endswith("<think>Then read it.</think>")
    assert notes == ["replay.partial"]


def test_a_leading_part_ends_with_its_thought_although_the_batch_went_on() -> None:
    witness = Witness()
    sealing = SEALER.turn("t1", model="m", tenant="t", tail="<think>\n", shape=witness)
    sealing.add(TOKENIZER.encode("Hm.</think>\n\nWriting"))
    witness.feed(
        [
            BlockOpened(0, "reasoning"),
            BlockDelta(0, "Hm.", "Hm."),
            BlockClosed(0, "reasoning", raw="</think>"),
            BlockOpened(1, "text", raw="\n\n"),
            BlockDelta(1, "Writing", "Writing"),
        ]
    )
    blocks = (ReasoningBlock(text="Hm.", seal=sealing.seal()), TextBlock(text="Writing it."))
    turn, notes = recalled(Message(role="assistant", blocks=blocks))
    assert turn is not None
    assert list(turn.ids) == TOKENIZER.encode("Hm.</think>")
    assert (turn.text, turn.complete, turn.tail) == ("Hm.</think>", False, "<think>\n")
    assert notes == ["replay.partial"]


def test_a_lost_last_seal_is_made_up_for_by_the_store() -> None:
    served = Served(RAW)
    store = MemoryTurnStore()
    served.store_in(store)
    turn, notes = recalled(Message(role="assistant", blocks=tuple(served.blocks)), store)
    assert turn is not None
    assert turn.complete
    assert list(turn.ids) == served.ids
    assert notes == []


def test_a_lost_first_seal_is_a_gap() -> None:
    served = Served(RAW)
    first, *rest = served.message.blocks
    assert isinstance(first, ReasoningBlock)
    blocks = (msgspec.structs.replace(first, seal=None), *rest)
    assert recalled(Message(role="assistant", blocks=blocks)) == (None, ["replay.gap"])


def test_seals_from_elsewhere_are_named() -> None:
    served = Served(RAW)
    assert recalled(served.message, model="other") == (None, ["replay.seal_other_model"] * 3)
    assert recalled(served.message, tenant="other") == (None, ["replay.seal_other_tenant"] * 3)
    assert recalled(served.message, sealer=Sealer([b"k" * 32])) == (None, ["replay.seal_foreign"] * 3)
    assert recalled(served.message, sealer=None) == (None, ["replay.missing"])


def test_two_turns_in_one_message_are_refused() -> None:
    one, two = Served(RAW, "turn1"), Served(RAW, "turn2")
    blocks = (*one.message.blocks, *two.message.blocks)
    assert recalled(Message(role="assistant", blocks=blocks)) == (None, ["replay.several_turns"])


def test_the_store_finds_a_turn_by_stripped_ids() -> None:
    served = Served(RAW)
    store = MemoryTurnStore()
    served.store_in(store)
    stripped = [
        msgspec.structs.replace(block, id=block.id.replace("_", "").replace("-", ""))
        if isinstance(block, ToolCallBlock)
        else block
        for block in served.without_seals().blocks
    ]
    turn, notes = recalled(Message(role="assistant", blocks=tuple(stripped)), store)
    assert turn is not None
    assert list(turn.ids) == served.ids
    assert notes == []


@pytest.mark.parametrize("history", [OTHER, None, HistoryKey(strict=b"strict", loose=(b"other",))])
def test_the_id_of_a_call_alone_finds_nothing(history: HistoryKey | None) -> None:
    served, store = Served(RAW), MemoryTurnStore()
    served.store_in(store)
    assert recalled(served.without_seals(), store, history=history) == (None, ["replay.missing"])


def test_a_call_is_found_without_the_aside_that_followed_the_history() -> None:
    served, store = Served(RAW), MemoryTurnStore()
    served.store_in(store)
    without = HistoryKey(strict=b"another", loose=HISTORY.loose[1:])
    turn, notes = recalled(served.without_seals(), store, history=without)
    assert turn is not None
    assert list(turn.ids) == served.ids
    assert notes == []


THOUGHT_ALONE = [(("reasoning", "Nothing to say."), "Nothing to say.</think>"), ((), "<|im_end|>")]


def test_the_store_finds_a_turn_that_only_thought() -> None:
    served, store = Served(THOUGHT_ALONE), MemoryTurnStore()
    served.store_in(store)
    turn, notes = recalled(served.without_seals(thoughts=True), store)
    assert turn is not None
    assert list(turn.ids) == served.ids
    assert notes == []


SAID = [(("reasoning", "A thought."), "A thought.</think>"), (("text", "Done."), "\n\nDone.<|im_end|>")]
SAID_AGAIN = [(("reasoning", "Another."), "Another.</think>"), (("text", "Done."), "\n\nDone.<|im_end|>")]


def test_the_store_finds_a_turn_by_what_was_said() -> None:
    served = Served(SAID)
    store = MemoryTurnStore()
    served.store_in(store)
    turn, notes = recalled(Message(role="assistant", blocks=(TextBlock(text=" Done.\n"),)), store)
    assert turn is not None
    assert list(turn.ids) == served.ids
    assert notes == []
    assert recalled(Message(role="assistant", blocks=(TextBlock(text="Undone."),)), store) == (None, ["replay.missing"])
    said = Message(role="assistant", blocks=(TextBlock(text="Done."),))
    assert recalled(said, store, history=OTHER) == (None, ["replay.missing"])
    assert recalled(said, store, history=None) == (None, ["replay.missing"])
    forked, notes = recalled(said, store, session="other")
    assert forked is not None
    assert notes == []


def test_the_same_words_twice_need_a_thought_to_tell() -> None:
    one, two = Served(SAID), Served(SAID_AGAIN)
    store = MemoryTurnStore()
    one.store_in(store)
    two.store_in(store)
    assert recalled(one.without_seals(), store) == (None, ["replay.ambiguous"])
    three = Served(SAID)
    three.store_in(store, session="s3")
    own, notes = recalled(three.without_seals(), store, session="s3")
    assert own is not None
    assert list(own.ids) == three.ids
    assert notes == []
    turn, notes = recalled(one.without_seals(thoughts=True), store)
    assert turn is not None
    assert list(turn.ids) == one.ids
    assert notes == []


def test_events_without_model_text_leave_no_trace() -> None:
    def shape(*extra: Event) -> bytes:
        witness = Witness()
        witness.feed([BlockOpened(0, "text"), BlockDelta(0, "Hi", "Hi"), *extra, BlockClosed(0, "text")])
        return witness.shape(last=True)

    assert shape(Usage(1), SealCarried(0, "tw1.x"), Note("n"), Finished("stop")) == shape()


def test_malformed_calls_are_not_compared() -> None:
    witness = Witness()
    witness.feed([BlockOpened(0, "tool_call", "f"), ToolCallClosed(0, "f", '{"a": ', "c", malformed=True)])
    sent = '{"__unparsedToolInput":{"raw":"{\\"a\\": ","len":6}}'
    message = Message(role="assistant", blocks=(ToolCallBlock(id="c", name="f", arguments=sent),))
    assert edits(witness.shape(last=True), message) is None


def test_custom_calls_compare_their_raw_text() -> None:
    witness = Witness()
    witness.feed([ToolCallClosed(0, "apply_patch", '{"input": "*** Begin\\n+x \\n"}', "c")])
    shape = witness.shape(last=True)
    block = ToolCallBlock(id="c", name="apply_patch", arguments="*** Begin\n+x \n", kind="custom")
    assert edits(shape, Message(role="assistant", blocks=(block,))) is None
    other = msgspec.structs.replace(block, arguments="*** Begin\n-x\n")
    assert edits(shape, Message(role="assistant", blocks=(other,))) == "arguments"


def test_a_known_message_is_not_opened_again() -> None:
    served = Served(RAW)
    cache = RecallCache()
    bound = {"tokenizer": TOKENIZER, "tenant": "t", "model": "m", "session": "s", "cache": cache}
    first, _ = TurnRecall(sealer=SEALER, **bound).recall(served.message)  # type: ignore[arg-type]
    again, _ = TurnRecall(sealer=None, **bound).recall(served.message)  # type: ignore[arg-type]
    assert first is again
    stranger, notes = TurnRecall(sealer=None, **bound | {"tenant": "x"}).recall(served.message)  # type: ignore[arg-type]
    assert stranger is None
    assert [note.code for note in notes] == ["replay.missing"]


def test_what_is_known_of_one_session_is_not_told_to_another() -> None:
    one, two = Served(SAID), Served(SAID_AGAIN, "turn2")
    store, cache = MemoryTurnStore(), RecallCache()
    one.store_in(store, session="s1")
    two.store_in(store, session="s2")
    bound = {"tokenizer": TOKENIZER, "tenant": "t", "model": "m", "store": store, "cache": cache}
    for served, session in ((one, "s1"), (two, "s2"), (one, "s1")):
        turn, _ = TurnRecall(session=session, **bound).recall(served.without_seals(), HISTORY)  # type: ignore[arg-type]
        assert turn is not None
        assert list(turn.ids) == served.ids


def test_words_that_somebody_else_says_later_become_ambiguous() -> None:
    one, two = Served(SAID), Served(SAID_AGAIN, "turn2")
    store, cache = MemoryTurnStore(), RecallCache()
    recall = TurnRecall(tokenizer=TOKENIZER, tenant="t", model="m", store=store, cache=cache)
    one.store_in(store, session="")
    found, _ = recall.recall(one.without_seals(), HISTORY)
    assert found is not None
    two.store_in(store, session="")
    found, notes = recall.recall(two.without_seals(), HISTORY)
    assert found is None
    assert [note.code for note in notes] == ["replay.ambiguous"]


def test_the_cache_is_bounded() -> None:
    cache = RecallCache(max_tokens=1000)
    turn = RecalledTurn(ids=(1,) * 100, text="")
    messages = [Message(role="assistant", blocks=(TextBlock(text=str(number)),)) for number in range(50)]
    for message in messages:
        cache.put(("space", b"s", message), turn)
    held = [message for message in messages if cache.get(("space", b"s", message)) is not None]
    assert held == messages[-6:]


def test_think_tags_that_were_text_are_read_as_text() -> None:
    served = Served([(("text", "<think>loud</think>"), "<think>loud</think>"), (("text", "Four."), "Four.")])
    store = MemoryTurnStore()
    served.store_in(store)
    read = (ReasoningBlock(text="loud"), TextBlock(text="Four."))
    for message in (Message(role="assistant", blocks=read), Message(role="assistant", blocks=(*read, served.carrier))):
        turn, notes = recalled(message, store)
        assert turn is not None
        assert list(turn.ids) == served.ids
        assert notes == []
    other = (ReasoningBlock(text="quiet"), TextBlock(text="Four."))
    assert recalled(Message(role="assistant", blocks=other), store) == (None, ["replay.missing"])


def test_content_mark_ignores_blanks_only() -> None:
    def said(text: str) -> bytes:
        return content_mark(Message(role="assistant", blocks=(TextBlock(text=text),)))

    assert said("a b\n c") == said("abc\n")
    assert said("abc") != said("abd")


def test_notes_are_notes() -> None:
    _, notes = TurnRecall(tokenizer=TOKENIZER, tenant="t", model="m").recall(Message(role="assistant", blocks=()))
    assert notes == (Note("replay.missing", NOTES["replay.missing"]),)


def test_the_page_tells_of_every_note() -> None:
    page = (Path(__file__).parents[2] / "docs" / "seals.md").read_text(encoding="utf-8")
    said = re.findall(r'noted\(f?"(replay[a-z_.]+)', (Path(recall_module.__file__)).read_text(encoding="utf-8"))
    assert len(said) > 5
    for code in NOTES:
        if not code.startswith(tuple(said)):
            continue
        assert f"| `{code}` |" in page
