"""The page of fields is the table that the decoders read."""

from __future__ import annotations

from pathlib import Path

from turnwire.protocols.fields.page import field_page
from turnwire.protocols.fields.table import TABLES

PAGE = Path(__file__).parents[2] / "docs" / "fields.md"


def test_the_page_is_what_the_tables_say() -> None:
    assert PAGE.read_text() == field_page(), "write it again: python -m turnwire.protocols.fields.page > docs/fields.md"


def test_the_page_has_every_row() -> None:
    page = field_page()
    rows = [f"| `{name}` | {row.use} | {row.about}" for table in TABLES.values() for name, row in table.items()]
    assert all(row.replace("|", "\\|") in page.replace("|", "\\|") for row in rows)
    assert len(rows) > 200
