"""The text of a conversation that went on: only its last exchange and what is new are shown to the template.

Promise: `continued` gives what the template writes of the whole conversation, or None where that cannot be seen from a
part of it. It asks for a template whose history was found fixed when it was probed, and compares what it leaves out
with what is known: the whole end of the known text once for a conversation, its last exchange and question each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from turnwire.prompts.replay.growing_text import GrownText
from turnwire.prompts.replay.splicer import TemplateSplicer, Text
from turnwire.prompts.templates.template import TemplateFailure
from turnwire.turns import ImageBlock, Message, TextBlock

__all__ = ["ContinuedText", "continued"]

Span: TypeAlias = tuple[int, int]

_PLAIN = frozenset("#-*+\"'`/.,:!?~=_\\")  # what prose, Markdown and code begin with beside letters and digits
_FEWEST = 6  # messages; a shorter conversation is rendered as quickly as its end


class ContinuedText(msgspec.Struct, frozen=True, gc=False):
    """The whole text without marks, the spans in it that stay text, and where the first question begins in a rendering
    of the last exchange alone. At least the first `common` characters are those of the known text."""

    text: Text
    literal: Sequence[Span]
    shared: int
    common: int


def continued(
    splicer: TemplateSplicer,
    base: GrownText,
    window: int | None,
    messages: Sequence[Message],
    digests: Sequence[bytes],
    end: int,
    args: Mapping[str, Any],
    unmarked: Callable[[str], tuple[str, Sequence[Span]]],
) -> ContinuedText | None:
    """The prompt for the turn at `end`, grown from `base`, which ends with a question. `window` is the place that was
    found for `base`, if it was grown itself; `unmarked` takes the marks out of what was rendered."""
    size = len(base.digests)
    if not _FEWEST <= size < end or tuple(base.digests) != tuple(digests[:size]) or not _asks(messages[size - 1]):
        return None
    start = next((at for at in range(size - 2, 0, -1) if _asks(messages[at])), None)
    places = {found.index: found.at for found in base.found[-(size - (start or 0)) :]}
    if start is None or start not in places or size - 1 not in places:
        return None
    asked = places[size - 1]
    try:
        now = splicer.window(start, end, args)
        plain, literal = unmarked(now.whole)

        def from_window(shared: int, common: int) -> ContinuedText:
            """The known text up to its question, and what the window shows from there on."""
            shift = places[start] - shared
            spans = [span for span in base.literal if span[1] <= asked]
            spans += [(first + shift, last + shift) for first, last in literal if last + shift > asked]
            return ContinuedText(Text(base.text[:asked] + plain[asked - shift :], now.tail), spans, shared, common)

        # With the last question itself: words that an answer had listed may have been taken for the one before it.
        if window is not None and plain.startswith(base.text[places[start] : base.limit], window):
            return from_window(window, base.limit)
        before, _ = unmarked(splicer.window(start, size, args).whole)
    except TemplateFailure:
        return None
    # The earlier question and all after it read the same beside the rest of the conversation and without it ...
    offset = len(before) - len(base.text)
    shared = places[start] + offset
    if shared < 0 or before[shared:] != base.text[places[start] :]:
        return None
    # ... and what follows the last question changes nothing before it.
    if not plain.startswith(before[: asked + offset]):
        return None
    return from_window(shared, asked)


def _asks(message: Message) -> bool:
    """Whether a message is a user's question and nothing else; one that begins like markup, or with a blank that a
    template may trim, may be something else to it."""
    if message.role != "user" or not message.blocks:
        return False
    first = message.blocks[0]
    return (
        type(first) is TextBlock
        and (first.text[:1].isalnum() or first.text[:1] in _PLAIN)
        and all(type(block) in (TextBlock, ImageBlock) for block in message.blocks)
    )
