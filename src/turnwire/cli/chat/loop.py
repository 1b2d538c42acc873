"""The two ways to talk: a conversation on a terminal, and plain text through a pipe.

Promise: in a pipe stdout holds the answer and nothing else, and the exit code says whether there was one. A tool runs
only after a person said so on the terminal, or with `--yes`.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from turnwire.agent import (
    Approval,
    ChatSession,
    Ended,
    EndpointError,
    Memory,
    ReasoningDelta,
    StepLimitReached,
    StepStarted,
    TextDelta,
    ToolDefinitionError,
    ToolFinished,
    ToolRefused,
    ToolRequest,
    ToolStarted,
)
from turnwire.cli.chat.asking import Asker, argument_lines, choices
from turnwire.cli.chat.commands import Commands, SavedChat
from turnwire.cli.chat.keys import ESCAPE, KeyWatch
from turnwire.cli.chat.plain import prose, spelled
from turnwire.cli.chat.prompt import Prompt
from turnwire.cli.chat.screen import TurnScreen, call_line
from turnwire.cli.loading import Loading
from turnwire.python_files import source_spec

__all__ = ["Request", "run"]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line said."""

    url: str
    key: str | None
    model: str | None
    system: str
    tools: Path | None
    yes: bool
    budget: int
    options: Mapping[str, Any]
    thoughts: bool
    load: Path | None
    question: str | None


class _Permission:
    """Whom tools ask before they run: whoever watches the turn that is on."""

    def __init__(self) -> None:
        self.asker: Asker | None = None

    def __call__(self, request: ToolRequest) -> Approval:
        return self.asker(request) if self.asker is not None else "no"


def run(request: Request) -> None:
    """Talk until there is nothing left to say."""
    permission = _Permission()
    try:
        session = ChatSession(
            request.url,
            request.model,
            tools=_functions(request.tools) if request.tools else (),
            api_key=request.key,
            instructions=request.system,
            memory=Memory(budget=request.budget),
            options=request.options,
            approve=None if request.yes else permission,
        )
    except (ToolDefinitionError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    with session:
        if request.load is not None:
            _load(session, request.load)
        if request.question is None and sys.stdin.isatty() and sys.stdout.isatty():
            _converse(session, permission, unfolded=request.thoughts)
            return
        code = 0
        for asked in _questions(request.question):
            code = _pipe(session, permission, asked, request.thoughts) or code
        if code:
            raise SystemExit(code)


def _questions(question: str | None) -> Iterator[str]:
    if question is not None:
        more = "" if sys.stdin.isatty() else sys.stdin.read().strip()
        yield f"{question}\n\n{more}" if more else question
        return
    for line in sys.stdin:
        if line.strip():
            yield line.strip()


# ------------------------------------------------------------------------------------------------------------ a pipe


def _pipe(session: ChatSession, permission: _Permission, question: str, thoughts: bool) -> int:
    """One turn as plain text: the answer to stdout as it streams, everything else to stderr."""
    if question.startswith("/"):
        Commands(session, click.echo, lambda: "").run(question)
        return 0
    asker = permission.asker = Asker(_ask_below, _show_below) if sys.stdin.isatty() else None
    calls: dict[str, str] = {}
    last = "\n"
    try:
        with KeyWatch(asker.keys if asker is not None else {}), Loading("waiting for the model") as waiting:
            for event in session.stream(question):
                if not isinstance(event, StepStarted):
                    waiting.stop()
                if isinstance(event, TextDelta):
                    click.echo(prose(event.text) if sys.stdout.isatty() else event.text, nl=False)
                    last = event.text or last
                elif isinstance(event, ToolStarted):
                    calls[event.call_id] = call_line(event.name, event.arguments)
                elif isinstance(event, ToolFinished):
                    mark = "failed" if event.failed else "ok"
                    click.echo(f"[{calls[event.call_id]}: {mark}, {event.seconds:.2f} s]", err=True)
                elif isinstance(event, ToolRefused):
                    why = "" if asker is not None else "; --yes runs tools without asking"
                    click.echo(f"[{call_line(event.name, event.arguments)}: not run{why}]", err=True)
                elif isinstance(event, ReasoningDelta):
                    if thoughts:
                        click.echo(event.text, nl=False, err=True)
                elif isinstance(event, (StepStarted, Ended)):
                    if isinstance(event, StepLimitReached) and last == "\n":
                        click.echo(last := event.text, nl=False)
                    if not last.endswith("\n"):
                        # The text of the next step, or the shell's prompt, begins a line of its own.
                        click.echo(last := "\n", nl=False)
    except EndpointError as error:
        click.echo(f"Error: {_told(error)}", err=True)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if asker is not None:
            asker.close()
    return 0


def _ask_below(request: ToolRequest | None) -> None:
    if request is not None:
        arguments = "".join(f"\n    {line}" for line in argument_lines(request, whole=False))
        click.echo(f"? run {spelled(request.name)}{arguments}\n  {choices(request.name)}", err=True)


def _show_below(request: ToolRequest) -> None:
    for line in argument_lines(request, whole=True):
        click.echo(f"    {line}", err=True)


def _told(error: EndpointError) -> str:
    """A failure, and what to do about a missing key."""
    hint = " Give the server's key with --key or TURNWIRE_API_KEY." if error.status == 401 else ""
    return f"{error}{hint}"


# -------------------------------------------------------------------------------------------------------- a terminal


def _converse(session: ChatSession, permission: _Permission, *, unfolded: bool) -> None:
    console = Console(highlight=False)
    try:
        served = session.served_model()
    except EndpointError as error:
        raise click.ClickException(_told(error)) from None
    console.print(f"[bold]{served}[/] · /help lists the commands · Alt-Enter: new line · Ctrl-D leaves")
    if session.tools:
        rule = "asks before each runs" if "asks" in session.tools.values() else "they run without asking (--yes)"
        console.print(f"tools: {', '.join(session.tools)} · {rule}", markup=False)
    screen: TurnScreen | None = None

    def last_thoughts() -> str:
        return screen.thoughts if screen is not None else ""

    def models() -> list[str]:
        try:
            return session.models()
        except EndpointError:
            return []

    commands = Commands(session, lambda text: console.print(prose(text), markup=False), last_thoughts)
    prompt = Prompt(commands.meanings, models)
    while not commands.done:
        try:
            line = prompt.ask().strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            continue
        if line.startswith("/"):
            commands.run(line)
        elif line:
            screen = TurnScreen(console, unfolded=unfolded)
            permission.asker = Asker(screen.ask, screen.show_whole)
            _turn(session, line, screen, permission.asker, console)
            unfolded = screen.unfolded


def _turn(session: ChatSession, question: str, screen: TurnScreen, asker: Asker, console: Console) -> None:
    keys: dict[str, Callable[[], None]] = {ESCAPE: session.cancel, "t": screen.fold, **asker.keys}
    console.print()
    try:
        with KeyWatch(keys), screen:
            try:
                for event in session.stream(question):
                    screen.show(event)
            except KeyboardInterrupt:
                console.print("[yellow]· cancelled[/]")
            finally:
                asker.close()
    except EndpointError as error:
        console.print(f"Error: {_told(error)}", style="red", markup=False)


# -------------------------------------------------------------------------------------------------------------- files


def _functions(path: Path) -> list[Callable[..., Any]]:
    """The public functions that a file defines itself."""
    spec = source_spec(f"turnwire_tools_{path.stem}", str(path))
    if spec is None or spec.loader is None:
        raise click.ClickException(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise click.ClickException(f"{path} cannot be run: {type(error).__name__}: {error}") from None
    found: list[Callable[..., Any]] = [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
    if not found:
        raise click.ClickException(f"{path} defines no public function.")
    return found


def _load(session: ChatSession, path: Path) -> None:
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=SavedChat)
    except (OSError, msgspec.DecodeError) as error:
        raise click.ClickException(f"{path} is not a saved conversation: {error}") from None
    session.resume(saved.messages)
    session.instructions = session.instructions or saved.instructions
    session.model = session.model or saved.model
