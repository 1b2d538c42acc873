"""The table a model family is described by: how it is read, how it writes a call, and how it is recognised.

Promise: everything that is known of a family's way to write is in its one table; nothing joins it by its name.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from turnwire.parsers.writing import CallForm

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = [
    "Codec", "Dialect", "Encoding", "Reader", "Reasoning", "Router", "RouterCodec", "Sign", "Signature", "Start",
    "Syntax",
]  # fmt: skip


class Start(msgspec.Struct, frozen=True):
    """Where the output begins, as the tail of the rendered prompt left it."""

    state: Literal["content", "reasoning", "header"] = "content"
    """In content, inside a thought, or inside a message header."""
    header: str = ""
    """What the prompt already holds of the header."""


class Reasoning(msgspec.Struct, frozen=True):
    """How a family writes thoughts."""

    open: tuple[str, ...] = ("<think>",)
    close: tuple[str, ...] = ("</think>",)
    labels: tuple[str, ...] = ()
    """Words that may follow the opener and belong to the format."""
    by_default: bool = False
    """Whether the output begins inside a thought when the prompt cannot be seen."""
    calls: Literal["end", "pause", "ignore"] = "end"
    """What a call inside an open thought does: end it (if the thought does not go on; reported), pause it (the thought
    goes on after the call), or nothing."""
    once: bool = False
    """The markers are ordinary prose, so they count only for one thought that begins the output."""
    mentions: bool = True
    """A call opener in mid-sentence of a thought only mentions calls; off where it is a special token."""


Where: TypeAlias = Literal["anywhere", "line", "start"]


class Sign(msgspec.Struct, frozen=True):
    """A literal by which prose may turn into a call."""

    text: str
    where: Where = "anywhere"
    """Anywhere, only at the start of a line, or only before any text of the turn."""
    rescue: bool = False
    """The format does not ask for it, so only an offered tool is believed."""
    any_tool: bool = False
    """It is a rescue, and yet any tool is believed."""


class Reader(Protocol):
    """Consumes text while it is the machine's reader.

    `run` returns the position up to which it consumed. Returning early while it is still the reader means it needs
    more text: what is left must be bounded in length, because it is read again with the next piece."""

    def run(self, text: str, pos: int) -> int:
        """Consume text from `pos` on."""
        ...

    def plain(self) -> str | None:
        """A regular expression: a piece of text in which it finds nothing is forwarded verbatim, as more of the open
        block, without `run` being asked. None where that does not hold."""

    def finish(self) -> None:
        """The output ended while this was the reader."""


class Codec(Reader, Protocol):
    """Reads calls of one syntax. It is entered after a sign, with the text on trial; it consumes text, opens and
    closes calls at the machine's sink, and hands back with `machine.leave()` or `machine.refuse()`."""

    def enter(self, sign: Sign) -> None:
        """A sign of this syntax was read."""


class Router(Protocol):
    """A table for families that route everything by message headers (channels): its codec reads the whole output,
    prose too, which it says with `machine.sink.say(kind, text)` and ends with `machine.sink.close_prose(marker)`."""

    def codec(self, machine: Machine) -> RouterCodec:
        """A reader for one turn."""
        ...

    def start(self, prompt_tail: str) -> Start:
        """Where the output begins after this prompt."""
        ...

    def without_calls(self) -> Router:
        """The same table, with calls left in the text."""
        ...

    def without_reasoning(self) -> Router:
        """The same table, with thoughts left in the text."""
        ...


class RouterCodec(Codec, Protocol):
    """A codec that is in charge from the first character on."""

    def begin(self, start: Start) -> None:
        """The output begins here."""


class Syntax(Protocol):
    """A table that describes how calls are written."""

    @property
    def signs(self) -> tuple[Sign, ...]:
        """What may open a call in prose."""
        ...

    @property
    def closers(self) -> tuple[str, ...]:
        """What ends calls; right after a call, one more of them is left out."""
        ...

    def codec(self, machine: Machine) -> Codec:
        """A reader for one turn."""
        ...


class Encoding(Enum):
    """Ways to write a prompt that need no template; whoever renders prompts has one for each."""

    HARMONY = "harmony"
    DEEPSEEK_V3_2 = "deepseek_v3_2"
    DEEPSEEK_V4 = "deepseek_v4"


class Signature(msgspec.Struct, frozen=True):
    """A family is recognised by texts that all occur in its template (or vocabulary)."""

    texts: tuple[str, ...]
    never: tuple[str, ...] = ()
    """Texts that must not occur."""
    weight: Literal["own", "shared", "base", "thought"] = "own"
    """Which signatures are tried first, and what the model's id may still change: only this family writes so (`own`);
    several do, and the id tells which (`shared`); it is the template of a base model, which fine-tunes keep, so that
    an id that is known decides (`base`); it shows thoughts but no calls (`thought`)."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """A model family's way to write a turn."""

    name: str
    aliases: tuple[str, ...] = ()
    """Its names in other registries; case and `-_. ` do not count."""
    reasoning_aliases: tuple[str, ...] = ()
    """Names that mean only its thoughts."""

    reasoning: Reasoning | None = None
    calls: tuple[Syntax, ...] = ()
    """How its calls are read; the first whose sign matches reads."""
    router: Router | None = None
    """Takes the place of reasoning markers and call signs where message headers say what a text is."""
    wrappers: tuple[str, ...] = ()
    """Markers around content that belong to the format."""
    ends: tuple[str, ...] = ("<|im_end|>", "<|endoftext|>")
    """End-of-turn texts, left out where they end the output."""
    breaks: tuple[str, ...] = ()
    """Texts that end a thought but are themselves text."""
    prefix: str = ""
    """Text that clients of this dialect expect before the output."""

    writes: CallForm | None = None
    """How it writes a call, for guided decoding."""
    no_form: str = ""
    """Why it has no such form, where it has calls."""

    turns: tuple[str, ...] = ()
    """Turn markers of its template beyond the usual ones."""
    known_by: tuple[Signature, ...] = ()
    ids: tuple[str, ...] = ()
    """What its models are called: glob patterns for the part of an id that begins at a word (`qwen3.[5-9]`)."""
    encoding: Encoding | None = None
    """How its prompts are written where the model ships no template."""

    def without_calls(self) -> Dialect:
        """The same dialect, with calls left in the text; their openers still end a thought."""
        if self.router is not None:
            return replace(self, router=self.router.without_calls())
        ends = self.reasoning is not None and self.reasoning.calls == "end"
        signs = tuple(sign.text for syntax in self.calls for sign in syntax.signs if not sign.rescue)
        return replace(self, calls=(), breaks=self.breaks + signs if ends else self.breaks)

    def without_reasoning(self) -> Dialect:
        """The same dialect, with thoughts left in the text."""
        return replace(self, reasoning=None, router=None if self.router is None else self.router.without_reasoning())

    @property
    def start(self) -> Start:
        """The start state to assume when the prompt cannot be seen."""
        if self.reasoning is not None and self.reasoning.by_default:
            return Start("reasoning")
        return Start("header") if self.router is not None else Start()
