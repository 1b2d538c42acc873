"""The page of this room: its examples run, and it names every note."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from turnwire.prompts import NOTES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "prompts.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(number: int, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[number], "utf-8")
    runpy.run_path(str(script))


def test_every_note_is_on_a_page() -> None:
    assert len(EXAMPLES) >= 6
    # Those of recalling turns are told on the page about seals.
    pages = PAGE + (Path(__file__).parents[2] / "docs" / "seals.md").read_text("utf-8")
    assert [code for code in NOTES if f"`{code}`" not in pages] == []
