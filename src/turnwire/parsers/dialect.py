"""The tables a model family is described by: where it reasons, what wraps its answer, how it writes calls."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["Codec", "Dialect", "Reader", "Reasoning", "Router", "RouterCodec", "Sign", "Start", "Syntax"]


@dataclass(frozen=True, slots=True)
class Start:
    """Where the output begins, as the tail of the rendered prompt left it: in `content`, inside `reasoning`, or inside
    a message `header`. `header` text that the prompt already holds is given along."""

    state: Literal["content", "reasoning", "header"] = "content"
    header: str = ""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How a family writes thoughts. `labels` are words that may follow the opener and belong to the format;
    `by_default` is the start state to take when the prompt cannot be seen; `calls` says what a call opener inside an
    open thought does: `end` it (reported), `pause` it (the thought goes on after the call), or nothing (`ignore`).
    `once`: the markers are ordinary prose, so they count only for one thought that begins the output.
    `mentions`: a call opener in mid-sentence of a thought only speaks of calls; off where it is a special token."""

    open: tuple[str, ...] = ("<think>",)
    close: tuple[str, ...] = ("</think>",)
    labels: tuple[str, ...] = ()
    by_default: bool = False
    calls: Literal["end", "pause", "ignore"] = "end"
    once: bool = False
    mentions: bool = True


Where: TypeAlias = Literal["anywhere", "line", "start"]


@dataclass(frozen=True, slots=True)
class Sign:
    """A literal by which prose may turn into a call. `where`: anywhere, only at the start of a line, or only before
    any text of the turn. `rescue`: the format does not ask for it, so only an offered tool is believed (with `any_tool`
    any is)."""

    text: str
    where: Where = "anywhere"
    rescue: bool = False
    any_tool: bool = False


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
        """Where the output begins behind this prompt."""
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
        """What ends calls; right behind a call, one more of them is left out."""
        ...

    def codec(self, machine: Machine) -> Codec:
        """A reader for one turn."""
        ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """A model family's way to write a turn. `wrappers` are markers around content that belong to the format; `ends`
    are end-of-turn texts, left out where they end the output; `turns` are turn markers of its template beyond the
    usual ones; `breaks` end a thought but are themselves text; `prefix` is text that clients of this
    dialect expect before the output. A `router` takes the place of reasoning markers and
    call signs where headers say what a text is."""

    name: str
    reasoning: Reasoning | None = None
    calls: tuple[Syntax, ...] = ()
    wrappers: tuple[str, ...] = ()
    ends: tuple[str, ...] = ("<|im_end|>", "<|endoftext|>")
    aliases: tuple[str, ...] = ()
    reasoning_aliases: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()
    prefix: str = ""
    router: Router | None = None

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
