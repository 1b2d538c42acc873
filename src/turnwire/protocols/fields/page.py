"""The page docs/fields.md: every field of every API and what becomes of it, printed from the field tables.

Promise: pure; the page says what the decoders do, because both read the same tables. Write it with
`python -m turnwire.protocols.fields.page > docs/fields.md`.
"""

from __future__ import annotations

from turnwire.protocols.fields.contents import CONTENTS
from turnwire.protocols.fields.members import MEMBERS
from turnwire.protocols.fields.table import TABLES, Field, FieldTable

__all__ = ["field_page"]

_HEAD = """\
# Every field of every API

This page is printed from `turnwire.protocols.fields.table`, the table that the decoders themselves read: a decoder
cannot read a field that has no row, and a field of a request that has no row is noted (`request.field_ignored`). Write
it again with `python -m turnwire.protocols.fields.page > docs/fields.md`.

| Word | What it means |
|---|---|
| honoured | it shapes the turn or its answer |
| echoed | it is repeated in the answer; noted (`request.field_echoed`) where it asks for something |
| noted | it is ignored, with a note (`request.field_ignored`) in `x-turnwire-notes`, the log and the metrics |
| refused | the request gets a 400 that says what to do instead |
| accepted | it asks for nothing that a server could do or leave undone |

The definitions of tools have tables of their own towards the end of the page; their notes have the code
`tools.option_ignored`. What a conversation is made of (blocks, parts, items and calls) has the last tables; a block or
item whose type is not known is kept whole and noted as such.

A value of `null` is as good as none. A wrong type or a number out of range is a 400 whose `param` is the field.
"""


def field_page() -> str:
    """The page, as Markdown."""
    fields = [line for name in TABLES for line in _section(name, TABLES[name])]
    members = [line for name in MEMBERS for line in _section(f"{name}: members of a tool", MEMBERS[name])]
    contents = [line for name in CONTENTS for line in _section(name, CONTENTS[name])]
    return "\n".join([_HEAD, *_across(), *fields, *members, *contents])


def _across() -> list[str]:
    """All top-level fields, one column for each API."""
    names = dict.fromkeys(name for table in TABLES.values() for name in table if "." not in name)
    lines = ["## All fields", "", f"| Field | {' | '.join(TABLES)} |", f"|---|{'---|' * len(TABLES)}"]
    for name in sorted(names):
        uses = [table[name].use if name in table else "" for table in TABLES.values()]
        lines.append(f"| `{name}` | {' | '.join(uses)} |")
    return [*lines, ""]


def _section(api: str, table: FieldTable) -> list[str]:
    lines = [f"## {api}", "", "| Field | Use | |", "|---|---|---|"]
    lines += [f"| `{name}` | {row.use} | {_about(row)} |" for name, row in sorted(table.items())]
    return [*lines, ""]


def _about(row: Field) -> str:
    about = row.about.replace("|", "\\|")
    if not row.quiet:
        return about
    values = ", ".join(f"`{value!r}`" for value in row.quiet)
    return f"{about}; asks for nothing: {values}"


if __name__ == "__main__":
    print(field_page(), end="")
