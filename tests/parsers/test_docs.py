"""The page on parsers: its examples run, its family is added as a file, its tables are complete."""

import importlib
import re
import runpy
from pathlib import Path

import pytest
from running import parse
from samples import TOOLS

from turnwire.parsers import NOTES, Start, detect, dialects, resolve, start_state
from turnwire.parsers.lookup import registry
from turnwire.parsers.lookup.detect import _patterns, _shared, signatures

PAGE = (Path(__file__).parents[2] / "docs" / "parsers.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CACHES = (registry.dialects, registry._names, registry._reasoning_names, signatures, _patterns, _shared)


def test_the_example_runs(tmp_path):
    lines = BLOCKS[0].splitlines()
    assert len([line for line in lines if line and not line.startswith("from")]) <= 10
    (tmp_path / "example.py").write_text(BLOCKS[0], encoding="utf-8")
    runpy.run_path(str(tmp_path / "example.py"))


def test_every_note_is_in_the_table():
    listed = dict(re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \| (.+) \|$", PAGE, re.MULTILINE))
    assert listed == NOTES


@pytest.fixture
def acme(tmp_path, monkeypatch):
    """The page's family as a file among the dialects."""
    (tmp_path / "acme.py").write_text(BLOCKS[1], encoding="utf-8")
    monkeypatch.setattr(registry._folder, "__path__", [*registry._folder.__path__, str(tmp_path)])
    for cache in CACHES:
        cache.cache_clear()
    yield
    monkeypatch.undo()
    for cache in CACHES:
        cache.cache_clear()


def test_a_family_is_added_by_one_file(acme):
    dialect = resolve("ACME-2")
    assert dialect.name == "acme"
    assert "acme" in {known.name for known in dialects()}
    text = (
        '<ponder>Which?</ponder>\nThis.\n<acts>\n<act tool="edit">\n<with key="path">a < b</with>\n<with key="count">3'
        '</with>\n</act>\n<act tool="ls"></act>\n</acts>\nDone.<over/>'
    )
    turn = parse(dialect, text, TOOLS)
    assert [(b.kind, b.name, b.text) for b in turn.blocks] == [
        ("reasoning", "", "Which?"),
        ("text", "", "This."),
        ("tool_call", "edit", '{"path": "a < b", "count": 3}'),
        ("tool_call", "ls", "{}"),
        ("text", "", "Done."),
    ]
    assert turn.notes == []
    assert start_state("assistant: <ponder>", dialect) == Start("reasoning")
    assert resolve("hermes", "acme").reasoning == dialect.reasoning
    assert detect("org/Acme-2-8B-GGUF").dialect == dialect
    assert detect("", "<act tool={{ name }}><with key={{ key }}>").dialect == dialect
    assert dialect.writes is not None
    written = parse(dialect, dialect.writes.written(("edit", {"path": "a < b", "count": 3}), ("ls", {})), TOOLS)
    assert [b.text for b in written.of("tool_call")] == ['{"path": "a < b", "count": 3}', "{}"]


def test_the_family_is_gone_again():
    assert "acme" not in {known.name for known in dialects()}


def test_every_codec_of_the_table_exists():
    for module, name in re.findall(r"`codecs\.([a-z_]+)\.([A-Z]\w+)`", PAGE):
        assert hasattr(importlib.import_module(f"turnwire.parsers.codecs.{module}"), name)
