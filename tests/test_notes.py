"""One registry of notes over all rooms: every code that the sources use is in its room's table, and on the page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from turnwire import engines, gateway, parsers, prompts, protocols
from turnwire.engines.notes import NOTES as ENGINES
from turnwire.gateway.notes import NOTES as GATEWAY
from turnwire.parsers.notes import NOTES as PARSERS
from turnwire.prompts.notes import NOTES as PROMPTS
from turnwire.protocols.notes import NOTES as PROTOCOLS

ROOMS = {
    "engines": (engines, ENGINES),
    "gateway": (gateway, GATEWAY),
    "parsers": (parsers, PARSERS),
    "prompts": (prompts, PROMPTS),
    "protocols": (protocols, PROTOCOLS),
}
EVERY = {code: meaning for _, notes in ROOMS.values() for code, meaning in notes.items()}
# What makes a note: the value itself, and the functions that rooms have for it.
MAKERS = {"Note", "PartNote", "noted", "note", "_note", "add", "take"}
CODE = re.compile(r"[a-z]+(?:\.[a-z_]+)+")


def sources(room: str) -> list[Path]:
    folder = ROOMS[room][0].__file__
    assert folder is not None
    return sorted(Path(folder).parent.rglob("*.py"))


def made_in(path: Path) -> set[str]:
    """The codes that a file gives to a maker of notes, as far as they are written out there."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        first = node.args[0]
        if name in MAKERS and isinstance(first, ast.Constant) and isinstance(first.value, str):
            direct = name in ("Note", "PartNote", "noted")
            if direct or CODE.fullmatch(first.value):
                found.add(first.value)
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_every_code_in_the_sources_is_in_the_registry(room: str) -> None:
    made = {code for path in sources(room) for code in made_in(path)}
    assert made
    assert made <= set(EVERY)


@pytest.mark.parametrize("room", ROOMS)
def test_every_code_of_the_registry_is_in_the_sources(room: str) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in sources(room) if path.name != "notes.py")
    # Codes that are put together from a part and a reason: `replay.edited.` and `replay.seal_`.
    together = re.compile(r"replay\.(edited\.|seal_)")
    elsewhere = "".join(path.read_text(encoding="utf-8") for path in sources("gateway") if path.name != "notes.py")
    missing = [code for code in ROOMS[room][1] if f'"{code}"' not in text + elsewhere and not together.match(code)]
    assert missing == []


def test_codes_are_dotted_and_belong_to_one_room() -> None:
    assert len(EVERY) == sum(len(notes) for _, notes in ROOMS.values())
    for code, meaning in EVERY.items():
        assert CODE.fullmatch(code), code
        assert meaning


def test_the_page_tells_of_every_note_and_no_other() -> None:
    page = (Path(__file__).parents[1] / "docs" / "notes.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `([a-z_.]+)` \| (.+) \|$", page, re.MULTILINE))
    assert told == {code: meaning.replace("{}", "...") for code, meaning in EVERY.items()}
