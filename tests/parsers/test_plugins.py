"""A family of one's own: as a file, or as an installed package's entry point."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
from running import parse
from samples import TOOLS

from turnwire.parsers import DialectFileError, Start, UnknownDialect, dialect_from_flag, load_dialect_file
from turnwire.parsers.lookup import plugins

ACME = """
from turnwire.parsers import CallForm, Dialect, Reasoning, Signature
from turnwire.parsers.codecs.envelope import Envelope

DIALECTS = (
    Dialect(
        name="acme",
        reasoning=Reasoning(("<ponder>",), ("</ponder>",)),
        calls=(Envelope(wrappers=(("<act>", "</act>"),)),),
        writes=CallForm(head='<act>{{"name": "{name}", "arguments": ', tail="}}</act>"),
        known_by=(Signature(("<act>",)),),
        ids=("acme",),
    ),
)
"""


def test_a_file_brings_a_family(tmp_path):
    path = tmp_path / "acme.py"
    path.write_text(ACME)
    (acme,) = load_dialect_file(str(path))
    assert dialect_from_flag(str(path)) == acme
    assert acme.writes is not None
    turn = parse(acme, "<ponder>a</ponder>b" + acme.writes.written(("ls", {})), TOOLS, Start())
    assert [(b.kind, b.name or b.text) for b in turn.blocks] == [("reasoning", "a"), ("text", "b"), ("tool_call", "ls")]
    assert dialect_from_flag(str(path), "none").reasoning is None
    assert dialect_from_flag("qwen3-coder").name == "qwen3_coder"


def test_one_of_several_is_chosen_by_name(tmp_path):
    path = tmp_path / "two.py"
    path.write_text("from turnwire.parsers import Dialect\nDIALECTS = (Dialect(name='one'), Dialect(name='two'))\n")
    assert dialect_from_flag(f"{path}:two").name == "two"
    with pytest.raises(UnknownDialect, match=r"two\.py:one"):
        dialect_from_flag(str(path))
    with pytest.raises(UnknownDialect, match=r"two\.py:one"):
        dialect_from_flag(f"{path}:three")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", "a tuple of Dialect"),
        ("DIALECTS = ()\n", "a tuple of Dialect"),
        ("DIALECTS = ('acme',)\n", "a tuple of Dialect"),
        ("import nosuch_module\n", "nosuch_module"),
        ("DIALECTS = (\n", "cannot be run"),
        (None, "There is no file"),
    ],
)
def test_a_file_that_brings_none_is_refused_with_what_to_change(tmp_path, text, words):
    path = tmp_path / "bad.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DialectFileError, match=words):
        load_dialect_file(str(path))


def test_installed_packages_bring_families(tmp_path, monkeypatch):
    (tmp_path / "acme_dialects.py").write_text(ACME)
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = EntryPoint("acme", "acme_dialects", plugins.GROUP)

    def found(**wanted: Any) -> EntryPoints:
        return EntryPoints([entry]).select(**wanted)

    monkeypatch.setattr(plugins, "entry_points", found)
    assert [dialect.name for dialect in plugins.installed_dialects()] == ["acme"]
    entry = EntryPoint("broken", "nosuch_package", plugins.GROUP)
    with pytest.raises(DialectFileError, match="nosuch_package"):
        plugins.installed_dialects()
