"""A turn's prompt as digests, so that another process can tell whether the next prompt continues it.

Promise: no text and no token leaves in a sketch. Whether a prefix held is exact; where it broke is known to a block,
and why as far as digests can show it. Work is linear in the prompt.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from itertools import takewhile

import msgspec

from turnwire.continuity.causes import Found, opening_marks
from turnwire.continuity.tracker import BuiltPrompt, broken, broken_section, header_of
from turnwire.continuity.verdict import Cause, Verdict
from turnwire.message_facts import message_facts
from turnwire.token_ids import packed_ids
from turnwire.turns import Conversation

__all__ = ["Sketch", "compared_with", "decode_sketch", "sketch_of"]

BLOCK = 256
"""Tokens of a block."""
_MARK = 8


class Sketch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A finished turn: its name, how many tokens its prompt and its whole had, where its generation header began, how
    many assistant turns came before it, and digests: of each leading block (8 bytes each, each over all before it), of
    the prompt, of the whole, and of the conversation's opening by part."""

    turn: str
    prompt: int
    end: int
    header: int
    before: int
    blocks: bytes
    of_prompt: bytes
    of_whole: bytes
    opening: dict[str, bytes]


def decode_sketch(data: bytes) -> Sketch | None:
    """A sketch that was encoded with MessagePack; None for anything else."""
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError:
        return None


_DECODER = msgspec.msgpack.Decoder(Sketch)


def sketch_of(
    prompt: BuiltPrompt, conversation: Conversation, output_ids: Sequence[int] = (), *, turn: str, cut: bool = False
) -> Sketch:
    """The sketch of a turn; of one that was `cut` only the prompt counts, without its generation header."""
    ids = packed_ids(prompt.ids)[:]
    header = header_of(prompt)
    if cut:
        del ids[header:]
    size = len(ids)
    if not cut:
        ids.extend(output_ids)
    marks = _marks(ids, (size, len(ids)))
    return Sketch(
        turn=turn,
        prompt=size,
        end=len(ids),
        header=header,
        before=message_facts(conversation.messages).turns_before,
        blocks=marks.blocks,
        of_prompt=marks.at[size],
        of_whole=marks.at[len(ids)],
        opening=opening_marks(conversation),
    )


class _Marks(msgspec.Struct, gc=False):
    """Digests of an array's leading blocks, and of its leading parts of some lengths."""

    blocks: bytes
    at: dict[int, bytes]


def _marks(ids: array[int], lengths: Sequence[int]) -> _Marks:
    """One pass over the array."""
    digest = blake2b(digest_size=16)
    blocks: list[bytes] = []
    at: dict[int, bytes] = {}
    place = 0
    for stop in sorted({*range(BLOCK, len(ids) + 1, BLOCK), *(each for each in lengths if each <= len(ids))}):
        digest.update(memoryview(ids)[place:stop])
        place = stop
        if stop % BLOCK == 0 and stop:
            blocks.append(digest.digest()[:_MARK])
        at[stop] = digest.digest()
    return _Marks(b"".join(blocks), at)


def compared_with(
    sketches: Sequence[Sketch], prompt: BuiltPrompt, conversation: Conversation, *, previous: str | None = None
) -> Verdict:
    """How the prompt continues the turns that other processes served."""
    before = message_facts(conversation.messages).turns_before
    ids = packed_ids(prompt.ids)
    marks = _marks(ids, [length for sketch in sketches for length in (sketch.prompt, sketch.end)])
    if previous:
        named = [sketch for sketch in sketches if sketch.turn == previous]
        if named:
            return _judged(named[0], marks, prompt, conversation)
    fitting = [sketch for sketch in sketches if sketch.before == before - 1 or _again(sketch, marks, len(ids))]
    held = [sketch for sketch in fitting if _shared(sketch, marks) == sketch.end or _again(sketch, marks, len(ids))]
    if held:
        return _judged(max(held, key=lambda sketch: sketch.end), marks, prompt, conversation)
    if not fitting:
        return Verdict(state="first")
    return _judged(max(fitting, key=lambda sketch: _shared(sketch, marks)), marks, prompt, conversation)


def _again(sketch: Sketch, marks: _Marks, size: int) -> bool:
    """Whether the very prompt of that turn was sent once more."""
    return size == sketch.prompt and marks.at.get(size) == sketch.of_prompt


def _shared(sketch: Sketch, marks: _Marks) -> int:
    """How many leading tokens are the same: all, or whole blocks."""
    if marks.at.get(sketch.end) == sketch.of_whole:
        return sketch.end
    if marks.at.get(sketch.prompt) == sketch.of_prompt:
        return sketch.prompt
    pairs = zip(range(0, len(sketch.blocks), _MARK), range(0, len(marks.blocks), _MARK), strict=False)
    same = takewhile(lambda at: sketch.blocks[at[0] : at[0] + _MARK] == marks.blocks[at[1] : at[1] + _MARK], pairs)
    return BLOCK * sum(1 for _ in same)


def _judged(sketch: Sketch, marks: _Marks, prompt: BuiltPrompt, conversation: Conversation) -> Verdict:
    shared = _shared(sketch, marks)
    if shared == sketch.end or _again(sketch, marks, len(prompt.ids)):
        return Verdict(state="held", shared=shared, expected=sketch.end, turn=sketch.turn)
    if not shared and not _related(sketch, opening_marks(conversation)):
        return Verdict(state="first")
    found = _cause(sketch, prompt, conversation, in_output=shared >= sketch.header)
    return broken(broken_section(prompt, shared), found, shared=shared, expected=sketch.end, turn=sketch.turn)


def _related(sketch: Sketch, now: dict[str, bytes]) -> bool:
    """Whether the two can be turns of one conversation: they share their system text or their tools."""
    return any(sketch.opening.get(part) == now[part] for part in ("system", "tools"))


def _cause(sketch: Sketch, prompt: BuiltPrompt, conversation: Conversation, *, in_output: bool) -> Found:
    codes = {note.code for note in prompt.notes}
    if in_output:
        if "replay.edited.arguments" in codes:
            return "arguments_rewritten", ""
        if any(code.startswith("replay.edited.") for code in codes):
            return "message_edited", ""
        return "turn_rewritten", ", ".join(sorted(code for code in codes if code.startswith("replay.")))
    now = opening_marks(conversation)
    for part, cause in _OPENING.items():
        if sketch.opening.get(part) != now[part]:
            if part == "system" and sketch.opening.get("unbilled") == now["unbilled"]:
                return "billing_line", ""
            if part == "tools" and sketch.opening.get("tool_set") == now["tool_set"]:
                return "tool_order", ""
            return cause, ""
    return "elsewhere", ""


_OPENING: dict[str, Cause] = {
    "model": "model_changed",
    "system": "system_changed",
    "tools": "tools_changed",
    "settings": "settings_changed",
}
