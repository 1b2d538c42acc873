"""`turnwire parse`: the parser as a tool, and `turnwire dialects`, its list.

Promise: of many rows each is answered, in order; a row that cannot be read is answered with its error.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from turnwire.parsers import Dialect, Parser, Start, UnknownDialect, dialect_from_flag, dialects, resolve, start_state
from turnwire.parsers.transcript import Transcript, TranscriptBlock, transcribe
from turnwire.turns import FinishReason, Tool

__all__ = ["dialects_command", "parse"]

_COLOURS = {"reasoning": "bright_black", "text": None, "tool_call": "green", "malformed_call": "red"}
_STATES = {"content": "content", "reasoning": "reasoning", "header": "header", "message_header": "header"}


@click.command()
@click.option("--dialect", help="How the model writes: a name (see `turnwire dialects`), or a FILE.py of your own.")
@click.option("--reasoning", help="Read thoughts as another dialect writes them; `none`: not at all.")
@click.option("--tools", type=click.Path(dir_okay=False), help="JSON file of tools, in OpenAI's or Anthropic's form.")
@click.option("--start", type=click.Choice(["content", "reasoning", "header"]), help="Where the output begins.")
@click.option("--prompt-tail", help="The end of the rendered prompt, from which the start is derived.")
@click.option("--cut", default="all", show_default=True, help="Feed it in pieces: N characters, `all`, `random:SEED`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--jsonl", type=click.Path(dir_okay=False, allow_dash=True), help="Parse every line of a file.")
def parse(
    dialect: str | None,
    reasoning: str | None,
    tools: str | None,
    start: str | None,
    prompt_tail: str | None,
    cut: str,
    as_json: bool,
    jsonl: str | None,
) -> None:
    """Parse raw model output from standard input into ordered blocks."""
    if jsonl is not None:
        _parse_lines(jsonl)
        return
    if dialect is None:
        raise click.UsageError("Say how the model writes: --dialect NAME.")
    case: dict[str, Any] = {"text": _standard_input(), "cut": cut}
    case |= {"start": start, "prompt_tail": prompt_tail, "tools": _tools_file(tools) if tools else []}
    try:
        turn = _parsed(case, dialect_from_flag(dialect, reasoning))
    except UnknownDialect as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(msgspec.json.encode(_shown(turn)))
    else:
        _print(turn)


@click.command("dialects")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def dialects_command(as_json: bool) -> None:
    """List the dialects and every name they are known by."""
    if as_json:
        rows = [{"name": d.name, "aliases": d.aliases, "reasoning_aliases": d.reasoning_aliases} for d in dialects()]
        click.echo(msgspec.json.encode(rows))
        return
    width = max(len(entry.name) for entry in dialects())
    for entry in dialects():
        names = ", ".join(dict.fromkeys((*entry.aliases, *entry.reasoning_aliases)))
        click.echo(f"{entry.name:{width}}  {names}")


def _standard_input() -> str:
    return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")


def _tools_file(path: str) -> Any:
    try:
        return msgspec.json.decode(Path(path).read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise click.ClickException(f"{path} cannot be read: {error}") from None


def _parse_lines(path: str) -> None:
    """Answer every row of a file; the exit status says whether all could be read."""
    rows = bad = 0
    with click.open_file(path, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                row = _parsed_line(line, number)
                rows, bad = rows + 1, bad + ("error" in row)
                click.echo(msgspec.json.encode(row))
    if bad:
        raise click.ClickException(f"{bad} of {rows} rows could not be read; each has its `error`")


def _parsed_line(line: bytes, number: int) -> dict[str, Any]:
    try:
        case = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return {"id": number, "line": number, "error": f"this is not a JSON object: {error}"}
    name = case.get("id", number)
    try:
        return {"id": name, **_shown(_parsed(case, _dialect(case)))}
    except UnknownDialect as error:
        return {"id": name, "line": number, "error": str(error)}
    except click.ClickException as error:
        return {"id": name, "line": number, "error": error.message}


def _parsed(case: dict[str, Any], dialect: Dialect) -> Transcript:
    text, finish = case.get("text", ""), case.get("finish", "stop")
    if not isinstance(text, str):
        raise click.ClickException("`text` is the model's output as one string")
    if finish not in get_args(FinishReason):
        raise click.ClickException(f"`finish` is one of {', '.join(get_args(FinishReason))}, not {finish!r}")
    parser = Parser(dialect, _tools(case.get("tools") or []), _start(case, dialect))
    events = [event for piece in _pieces(text, str(case.get("cut", "all"))) for event in parser.feed(piece)]
    events += parser.finish(finish)
    return transcribe(events)


def _dialect(case: dict[str, Any]) -> Dialect:
    """By our own field names, or by those of test vectors: a stage that is null is not exercised."""
    name = case.get("dialect") or case.get("family")
    tool, reasoning = case.get("tool"), case.get("reasoning")
    if not isinstance(name, str) or not isinstance(tool, str | None) or not isinstance(reasoning, str | None):
        raise click.ClickException("a case names its dialect in `dialect` or `family`, and stages by name or null")
    dialect = resolve(tool or name, reasoning)
    vector = "parser_tool" in case or "parser_reasoning" in case
    if ("tool" in case and tool is None) or (vector and case.get("parser_tool") is None):
        dialect = dialect.without_calls()
    if ("reasoning" in case and reasoning is None) or (vector and case.get("parser_reasoning") is None):
        dialect = dialect.without_reasoning()
    return dialect


def _start(case: dict[str, Any], dialect: Dialect) -> Start:
    init = case.get("init") or {}
    if not isinstance(init, dict):
        raise click.ClickException("`init` is an object")
    state = case.get("start") or init.get("starts_in")
    tail = case.get("prompt_tail", init.get("generation_prompt"))
    if state is not None:
        if not isinstance(state, str) or state not in _STATES:
            raise click.ClickException(f"start is content, reasoning or header, not {state!r}")
        return Start(_STATES[state])  # type: ignore[arg-type]
    if isinstance(tail, str):
        return start_state(tail, dialect)
    return Start() if "init" in case else dialect.start


def _tools(wires: Any) -> list[Tool]:
    found = []
    for wire in wires if isinstance(wires, list) else []:
        body = wire.get("function", wire) if isinstance(wire, dict) else {}
        body = body if isinstance(body, dict) else {}
        schema = body.get("parameters") or body.get("input_schema") or {}
        if isinstance(body.get("name"), str) and isinstance(schema, dict):
            found.append(Tool(name=body["name"], schema=schema))
    return found


def _pieces(text: str, cut: str) -> Iterator[str]:
    if cut == "all":
        yield text
    elif cut.startswith("random:"):
        draw = random.Random(cut)  # noqa: S311 - cuts, not secrets
        at = 0
        while at < len(text):
            size = draw.randint(1, 12)
            yield text[at : at + size]
            at += size
    elif cut.isdigit() and int(cut) > 0:
        for at in range(0, len(text), int(cut)):
            yield text[at : at + int(cut)]
    else:
        raise click.ClickException(f"cut is a number of characters, all, or random:SEED, not {cut!r}")


def _shown(turn: Transcript) -> dict[str, Any]:
    notes = [{"code": note.code, "message": note.message} for note in turn.notes]
    return {"blocks": [_block(block) for block in turn.blocks], "notes": notes}


def _block(block: TranscriptBlock) -> dict[str, Any]:
    if block.name is None:
        return {"type": block.type, "text": block.text or "", "raw": block.raw}
    call = {"type": block.type, "name": block.name, "arguments": block.arguments or "", "raw": block.raw}
    return call if block.id is None else call | {"id": block.id}


def _print(turn: Transcript) -> None:
    for block in turn.blocks:
        colour = _COLOURS[block.type]
        if block.name is not None:
            click.secho(f"{block.type} {block.name}", fg=colour, bold=True)
            click.secho(block.arguments or "", fg=colour)
        else:
            click.secho(block.type, fg=colour, bold=True)
            click.secho(block.text or "", fg=colour)
    for note in turn.notes:
        click.secho(f"note {note.code}: {note.message}", fg="yellow", err=True)
