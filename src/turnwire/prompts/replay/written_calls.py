"""How one template writes turns that call tools with plain words: learnt once for each tool and its arguments' names.

Promise: a turn whose arguments read the same however clients send them back is written as the template writes it, as
far as that and a sample with other words in the same places show; of words that are not plain the template is asked.
What is known is bounded; may be shared by threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeAlias

import msgspec

from turnwire.prompts.templates.probing.samples import mark
from turnwire.tool_sets import tool_set
from turnwire.turns import Block, TextBlock, Tool, ToolCallBlock

__all__ = ["WrittenCalls"]

Write: TypeAlias = Callable[[Sequence[Block]], str | None]

_MOST_FORMS = 256
_MOST_WORDS = 32
# Nothing in it that a template could escape, trim, or take for a number, a mark or a structure.
_PLAIN = re.compile(r"[A-Za-z/_.~](?:[\w /.~:,;=+@#*()?!^-]*[\w/.~)*-])?", re.ASCII)
_NOT_WORDS = frozenset(("true", "false", "null", "none", "nan", "inf", "infinity", "undefined"))
_LONGEST_FORM = 4096
_UNKNOWN: list[str] = []
_encode = msgspec.msgpack.Encoder().encode
_to_json = msgspec.json.Encoder().encode


class _Form(msgspec.Struct, frozen=True, gc=False):
    """What a turn is without its words, and its words in order."""

    shape: tuple[Any, ...]
    words: list[str]


class WrittenCalls:
    """The forms asked about last, and what is written around the words of each; None where that cannot be told."""

    def __init__(self) -> None:
        self._known: dict[bytes, list[str] | None] = {}

    def of(self, blocks: Sequence[Block], tools: Sequence[Tool], about: Sequence[Any], write: Write) -> str | None:
        """What `write` gives for the blocks, which call `tools`; `about` is what else that depends on."""
        form = _form(blocks)
        if form is None:
            return write(blocks)
        key = _encode((form.shape, tool_set(tools).digest(), about))
        if len(key) > _LONGEST_FORM:
            return write(blocks)
        around = self._known.get(key, _UNKNOWN)
        if around is None:
            return write(blocks)
        if around is not _UNKNOWN:
            return _filled(around, form.words)
        written = write(blocks)
        self._learn(key, blocks, form, written, write)
        return written

    def __len__(self) -> int:
        return len(self._known)

    def _learn(self, key: bytes, blocks: Sequence[Block], form: _Form, written: str | None, write: Write) -> None:
        marks = [mark(f"Word{number:02}") for number in range(len(form.words))]
        around = _around(write(_with_words(blocks, marks)), marks)
        if around is not None and _filled(around, form.words) != written:
            around = None
        if len(self._known) >= _MOST_FORMS:
            self._known.clear()
        self._known[key] = around


def _form(blocks: Sequence[Block]) -> _Form | None:
    """The form of blocks that are plain text and calls with plain words; None of any others."""
    shape: list[Any] = []
    words: list[str] = []
    for block in blocks:
        if type(block) is TextBlock:
            text = block.text
            if not text or text != text.strip() or "<" in text or "[" in text or "{" in text:
                return None
            shape.append(None)
            words.append(text)
        elif type(block) is ToolCallBlock:
            arguments = _decoded(block.arguments)
            if arguments is None or not all(map(_is_plain, arguments.values())):
                return None
            shape.append((block.id, block.kind, block.name, list(arguments)))
            words += arguments.values()
        else:
            return None
    return _Form(tuple(shape), words) if 0 < len(words) <= _MOST_WORDS else None


def _decoded(arguments: str) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return None
    return value if isinstance(value, dict) else None


def _is_plain(value: Any) -> bool:
    return type(value) is str and _PLAIN.fullmatch(value) is not None and value.lower() not in _NOT_WORDS


def _with_words(blocks: Sequence[Block], words: Sequence[str]) -> list[Block]:
    """The same form with other words."""
    left = iter(words)
    made: list[Block] = []
    for block in blocks:
        if isinstance(block, ToolCallBlock):
            given = dict.fromkeys(_decoded(block.arguments) or ())
            arguments = _to_json({name: next(left) for name in given}).decode()
            made.append(msgspec.structs.replace(block, arguments=arguments))
        else:
            made.append(TextBlock(text=next(left)))
    return made


def _around(written: str | None, words: Sequence[str]) -> list[str] | None:
    """What stands before, between and behind the words, None where they do not each show once and in order."""
    around: list[str] = []
    for word in words:
        before, found, written = (written or "").partition(word)
        if not found or word in written:
            return None
        around.append(before)
    return [*around, written or ""]


def _filled(around: Sequence[str], words: Sequence[str]) -> str:
    return "".join([*chain.from_iterable(zip(around, words, strict=False)), around[-1]])
