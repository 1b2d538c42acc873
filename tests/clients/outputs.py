"""Model output in the format that the default template asks for, and the script lines that play it."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["call", "line", "thought", "write_script"]


def thought(text: str, *, first: bool = True) -> str:
    """A thought; the first of a turn is already open, since the prompt ends with the opening tag."""
    return f"{'' if first else '<think>' + chr(10)}{text}\n</think>\n\n"


def call(name: str, **arguments: Any) -> str:
    """A tool call: text as it is, everything else as JSON."""
    lines = ["<tool_call>", f"<function={name}>"]
    for key, value in arguments.items():
        lines += [f"<parameter={key}>", value if isinstance(value, str) else json.dumps(value), "</parameter>"]
    return "\n".join([*lines, "</function>", "</tool_call>"])


def line(*parts: str, **settings: Any) -> dict[str, Any]:
    """One line of a script: the parts, one below the other where they are calls."""
    text = ""
    for part in parts:
        if text and not text.endswith("\n"):
            text += "\n"
        text += part
    return {"text": text, **settings}


def write_script(path: Any, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in lines), encoding="utf-8")
