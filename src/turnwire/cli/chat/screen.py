"""One turn of the agent on a terminal: markdown as it streams, thoughts dimmed and folded, tools with their time.

Promise: what is finished is printed for good and scrolls away like any output; only what still changes is redrawn.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from turnwire.agent import (
    AgentEvent,
    Cancelled,
    MemoryTrimmed,
    ReasoningDelta,
    Refused,
    StepLimitReached,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolRefused,
    ToolRequest,
    ToolStarted,
)
from turnwire.cli.chat.asking import argument_lines, choices
from turnwire.cli.chat.flow import MarkdownFlow
from turnwire.cli.chat.plain import prose, spelled

__all__ = ["TurnScreen", "call_line"]

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_SECONDS = 1 / 12
_SHOWN_LINES = 8
_ARGUMENT_CHARS = 60
_RESULT_CHARS = 100


def call_line(name: str, arguments: str) -> str:
    """A call as a person would write it."""
    try:
        values = msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        values = None
    if isinstance(values, dict):
        inside = ", ".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in values.items())
    else:
        inside = arguments
    return spelled(f"{name}({_short(inside, _ARGUMENT_CHARS)})")


class _Prose:
    """Markdown without the blank lines that it would put around itself."""

    def __init__(self, text: str) -> None:
        self._markdown = Markdown(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._markdown, options, pad=False)
        while lines and _is_blank(lines[0]):
            del lines[0]
        while lines and _is_blank(lines[-1]):
            del lines[-1]
        for line in lines:
            yield from line
            yield Segment.line()


def _is_blank(line: list[Segment]) -> bool:
    return not "".join(segment.text for segment in line).strip()


def _short(text: str, size: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= size else line[: size - 1] + "…"


class TurnScreen:
    """Shows the events of one turn. `unfolded` thoughts are written out; `thoughts` keeps them either way."""

    def __init__(self, console: Console, *, unfolded: bool) -> None:
        self.unfolded = unfolded
        self.thoughts = ""
        self._console = console
        self._flow = MarkdownFlow()
        self._thought: list[str] = []
        self._thinking_since = 0.0
        self._tools: dict[str, tuple[str, float]] = {}
        self._asked: ToolRequest | None = None
        self._waiting = False
        self._since = time.monotonic()
        # The live area is repainted by a thread of ours while events arrive in another, and everything that draws holds
        # this lock: with a thread of Live's own, its lock and ours could wait for each other.
        self._drawing = threading.RLock()
        self._over = threading.Event()
        self._painter = threading.Thread(target=self._paint, daemon=True, name="screen")
        self._live = Live(self, console=console, auto_refresh=False, transient=True, vertical_overflow="crop")

    def __enter__(self) -> TurnScreen:
        self._live.__enter__()
        self._painter.start()
        return self

    def _paint(self) -> None:
        while not self._over.wait(_FRAME_SECONDS):
            with self._drawing:
                self._live.refresh()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._painter.join()
        self._settle()
        self._waiting = False
        self._tools.clear()
        self._live.__exit__(kind, error, trace)

    def fold(self) -> None:
        """Show or hide the thoughts from here on."""
        with self._drawing:
            self.unfolded = not self.unfolded

    def ask(self, request: ToolRequest | None) -> None:
        """A question that stays on the screen until it is answered (None)."""
        with self._drawing:
            self._settle_thought()
            self._asked = request

    def show_whole(self, request: ToolRequest) -> None:
        """Print a call with all its arguments."""
        with self._drawing:
            self._print(Text(spelled(request.name), "bold"))
            for line in argument_lines(request, whole=True):
                self._print(Padding(Text(line), (0, 0, 0, 2)))

    def show(self, event: AgentEvent) -> None:
        """One event of the turn."""
        with self._drawing:
            self._show(event)

    def _show(self, event: AgentEvent) -> None:
        if isinstance(event, StepStarted):
            self._settle()
            self._waiting = True
        elif isinstance(event, ReasoningDelta):
            self._settle_text()
            if not self._thought:
                self._thinking_since = time.monotonic()
            self._thought.append(prose(event.text))
        elif isinstance(event, TextDelta):
            self._settle_thought()
            if settled := self._flow.feed(prose(event.text)).strip("\n"):
                self._print(_Prose(settled), gap=True)
        elif isinstance(event, ToolStarted):
            self._settle()
            self._tools[event.call_id] = (call_line(event.name, event.arguments), time.monotonic())
        elif isinstance(event, ToolFinished):
            line, _ = self._tools.pop(event.call_id, (call_line(event.name, ""), 0.0))
            mark, style = ("✗", "red") if event.failed else ("✓", "green")
            head = Text.assemble((f"{mark} ", style), line, (f"  {event.seconds:.2f} s", "cyan"))
            self._print(Group(head, Padding(Text(_short(prose(event.content), _RESULT_CHARS), "dim"), (0, 0, 0, 2))))
        elif isinstance(event, ToolRefused):
            line = call_line(event.name, event.arguments)
            self._print(Text.assemble(("– not run: ", "yellow"), line))
        elif isinstance(event, MemoryTrimmed):
            self._print(Text(f"· the oldest {event.turns} turn(s) left the conversation", "dim"))
        elif isinstance(event, Cancelled):
            self._settle()
            self._print(Text("· cancelled", "yellow"))
        elif isinstance(event, Refused):
            self._settle()
            self._print(Text("· the answer was not supported by what was found", "yellow"))
        elif isinstance(event, StepLimitReached):
            if not self._flow.rest:
                self._flow.feed(prose(event.text))
            self._settle()
            self._print(Text(f"· the limit of steps is reached ({event.steps})", "yellow"))

    # --------------------------------------------------------------------------------------------------- for good

    def _settle(self) -> None:
        self._settle_thought()
        self._settle_text()

    def _settle_text(self) -> None:
        if rest := self._flow.finish().strip("\n"):
            self._print(_Prose(rest), gap=True)

    def _settle_thought(self) -> None:
        if not self._thought:
            return
        text = "".join(self._thought).strip()
        seconds = time.monotonic() - self._thinking_since
        self._thought = []
        self.thoughts += ("\n\n" if self.thoughts else "") + text
        head = f"▾ thought for {seconds:.1f} s" if self.unfolded else f"▸ thought for {seconds:.1f} s, {_words(text)}"
        self._print(Text(head, "dim italic"))
        if self.unfolded:
            self._print(Padding(Text(text, "dim"), (0, 0, 0, 2)))

    def _print(self, what: RenderableType, *, gap: bool = False) -> None:
        self._waiting = False
        self._console.print(what)
        if gap:
            self._console.print()

    # ------------------------------------------------------------------------------------------------ still changing

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        now = time.monotonic()
        if self._asked is not None:
            # First, because what does not fit on the screen is cut at its end.
            yield from self._question(self._asked)
        text, rest, tools = "".join(self._thought), self._flow.rest, tuple(self._tools.values())
        if text:
            words = Text(f"thinking, {now - self._thinking_since:.1f} s, {_words(text)}", "dim italic")
            yield self._spinning(words)
            if self.unfolded:
                yield Padding(Text("\n".join(text.strip().splitlines()[-_SHOWN_LINES:]), "dim"), (0, 0, 0, 2))
        if rest.strip():
            yield _Prose(rest)
        for line, since in tools:
            yield self._spinning(Text.assemble(line, (f"  {now - since:.1f} s", "cyan")))
        if self._waiting and not (text or rest or tools or self._asked):
            yield self._spinning(Text("waiting for the model", "dim"))
        yield Text("Esc cancels · t shows or hides thoughts", "bright_black")

    @staticmethod
    def _question(request: ToolRequest) -> RenderResult:
        yield Text.assemble(("? run ", "bold yellow"), (spelled(request.name), "bold"))
        for line in argument_lines(request, whole=False):
            yield Padding(Text(line), (0, 0, 0, 4))
        yield Text(f"  {choices(request.name)}", "yellow")

    def _spinning(self, text: Text) -> Text:
        frame = _FRAMES[int((time.monotonic() - self._since) * 10) % len(_FRAMES)]
        return Text.assemble((f"{frame} ", "cyan"), text)


def _words(text: str) -> str:
    count = len(text.split())
    return f"{count} word" if count == 1 else f"{count} words"
