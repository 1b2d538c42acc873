"""The tables of the codecs: whole, reachable, driven by nothing else, and drawn on the page as they are."""

from __future__ import annotations

import random
import runpy
from enum import Enum
from pathlib import Path
from xml.etree import ElementTree

import pytest
from running import events_of
from samples import SAMPLES, TOOLS
from tests.parsers.fuzz import text_for

from turnwire.parsers import Start, dialects, resolve
from turnwire.parsers.codecs import named
from turnwire.parsers.codecs.braced import reader as braced
from turnwire.parsers.codecs.braced import text as braced_text
from turnwire.parsers.codecs.channels import bare, json_body
from turnwire.parsers.codecs.channels import reader as channels
from turnwire.parsers.codecs.envelope import reader as envelope
from turnwire.parsers.codecs.nested import reader as nested
from turnwire.parsers.codecs.pythonic import reader as pythonic
from turnwire.parsers.codecs.steps import Steps
from turnwire.parsers.codecs.tagged import reader as tagged
from turnwire.parsers.codecs.xtml import reader as xtml

READERS = (tagged, envelope, named, pythonic, braced, braced_text, nested, channels, bare, json_body, xtml)


TOOL = Path(__file__).parents[2] / "tools" / "state_machines.py"
TABLES = runpy.run_path(str(TOOL))
MACHINES = {name: moves for name, (_, moves) in TABLES["MACHINES"].items()}


def test_the_page_and_its_pictures_show_the_tables_as_they_are():
    files = TABLES["files"]()
    assert len(files) == 1 + len(MACHINES)
    for path, text in files.items():
        assert path.read_text(encoding="utf-8") == text, "run: python tools/state_machines.py"


@pytest.mark.parametrize("name", MACHINES)
def test_a_picture_has_every_state_and_every_move(name):
    (title, moves) = TABLES["MACHINES"][name]
    drawn = ElementTree.fromstring(TABLES["drawn"](title, moves))
    said = [node.text for node in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {state.name for state in moves} <= set(said)
    assert all(on.value in " / ".join(map(str, said)) for ways in moves.values() for on in ways)


@pytest.mark.parametrize(("title", "moves"), MACHINES.items())
def test_every_state_can_be_reached(title, moves):
    begin = next(iter(moves))
    begin = next((state for state in moves if state.name in {"OUT", "DONE", "LEAD", "PROSE"}), begin)
    begin = next((state for state in moves if title == "braced-objects" and state.name == "VALUE"), begin)
    reached, waiting = {begin}, [begin]
    while waiting:
        for target in moves.get(waiting.pop(), {}).values():
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    assert reached == set(type(begin)), title


@pytest.mark.parametrize("reader", READERS, ids=lambda module: module.__name__.removeprefix("turnwire.parsers.codecs."))
def test_a_state_with_a_step_has_a_row_or_ends_there(reader):
    ends = {"VERBATIM", "ALIEN", "ECHO"}  # left only for prose, or read to the end
    assert {state for state in reader.STEPS if state not in reader.NEXT and state.name not in ends} == set()


def test_every_move_is_really_taken(monkeypatch):
    """No table describes a machine that is not there: samples, cases and random texts take all of its ways."""
    taken: set[tuple[type[Enum], str, str]] = set()
    go = Steps._go

    def counted(self, on):
        taken.add((type(self._state), self._state.name, on.name))
        go(self, on)

    monkeypatch.setattr(Steps, "_go", counted)
    dice = random.Random(7)
    for dialect in dialects():
        texts = [SAMPLES[dialect.name], *(text_for(dialect, dice) for _ in range(40))]
        for text in texts:
            for start in (None, Start("reasoning"), Start()):
                events_of(dialect, [text], TOOLS, start)
    for name, text in UNUSUAL:
        events_of(resolve(name), [text], TOOLS, Start())
        events_of(resolve(name).without_calls(), [text], TOOLS, Start())
    for title, moves in MACHINES.items():
        kind = type(next(iter(moves)))
        declared = {(state.name, on.name) for state, ways in moves.items() for on in ways}
        assert declared - {(state, on) for owner, state, on in taken if owner is kind} == set(), title


# Ways that random texts seldom take.
UNUSUAL = (
    ("dots", '<dots_function_call><invoke name="edit">{"path": "a"}</invoke></dots_function_call>'),
    ("qwen3_coder", "<tool_call>\n<function=edit>\n<parameter=" + "x" * 600),
    ("hermes", '<tool_call>{"function": {"name": "ls", "arguments": {}}}</tool_call>'),
    ("gemma4", "<|tool_call>call:ls{}call:ls{}<tool_call|><|tool_call>call:ls<tool_call|>"),
    ("gemma4", '<|tool_call>call:edit{path:"a",options:{x:{}},items:[],rows:[1,[2]]}<tool_call|>'),
    ("gemma4", '<|tool_call>call:edit{count:3 path:<|"|>a<|"|>}<tool_call|>'),
    ("harmony", 'analysisWe think.assistantcommentary to=functions.edit json{"path": "a"}assistantfinalDone.'),
    ("harmony", "<|channel|>commentary to=functions <|constrain|>json<|message|>{}<|call|>"),
    ("harmony", "<|channel|>commentary to=functions.ls<|message|><|call|>"),
    ("harmony", '<|channel|>commentary to=functions.edit<|message|>{"path": "x<|call|><|start|>assistant'),
    ("inkling", SAMPLES["inkling"]),
    ("kimi_k3", SAMPLES["kimi_k3"]),
    ("kimi_k3", '<|open|>call tool=""<|sep|>'),
    (
        "kimi_k3",
        '<|open|>tools<|sep|><|open|>call tool="ls"<|sep|><|open|>json type="object"<|sep|>{}<|close|>json<|sep|>',
    ),
)
