"""How a family writes a call, as text around a name and its arguments: what guided decoding must make it write.

Promise: a call in such a form reads natively to the model, and the family's own parser reads it back as it was meant.
`{name}`, `{key}`, `{index}` and `{string}` are filled in.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

__all__ = ["ArgumentForm", "CallForm", "json_list", "json_object"]


class ArgumentForm(msgspec.Struct, frozen=True):
    """Arguments one by one: `open`, the value, `close`, with `between` them."""

    open: str
    """Before a value. A `{string}` in it says whether the value is text."""
    close: str
    between: str = ""
    strings: Literal["raw", "json"] = "raw"
    """How text is written; everything else is JSON."""
    quotes: tuple[str, str] = ("", "")
    """What else is around raw text, and around nothing else."""

    @property
    def marks_text(self) -> bool:
        """Whether what is around a value tells text from JSON."""
        return "{string}" in self.open or any(self.quotes)

    def opened(self, key: str, text: bool) -> str:
        """What comes before the value of an argument."""
        quote = self.quotes[0] if text and self.strings == "raw" else ""
        return self.open.format(key=key, string="true" if text else "false") + quote

    def closed(self, key: str, text: bool) -> str:
        """What comes after it."""
        quote = self.quotes[1] if text and self.strings == "raw" else ""
        return quote + self.close.format(key=key)


class CallForm(msgspec.Struct, frozen=True, kw_only=True):
    """One family's calls."""

    head: str
    """Before a call's arguments."""
    tail: str
    """After them."""
    section: tuple[str, str] = ("", "")
    """Around all calls of a turn."""
    between: str = ""
    """Between two calls."""
    arguments: ArgumentForm | None = None
    """How arguments are written; None: as one JSON object."""
    single: bool = False
    """Whether a turn ends with each call."""
    thought: tuple[str, str, str] | None = None
    """Where headers route the turn: the header of a thought before the calls, its end, and what leads on."""
    answer: str = ""
    """Where headers route the turn: the header of plain text."""

    @property
    def opener(self) -> str:
        """The fixed text that every call begins with."""
        return self.section[0] + self.head.replace("{{", "\0").partition("{")[0].replace("\0", "{")

    @property
    def wraps_object(self) -> bool:
        """Whether one JSON object holds name and arguments, so that a JSON schema alone can describe the call."""
        return self.arguments is None and self.head.endswith(": ") and self.head.count("{name}") == 1

    def open_call(self, name: str, index: int | str) -> str:
        """The head of a call, filled in."""
        return self.head.format(name=name, index=index)

    def close_call(self) -> str:
        """The tail of a call, filled in."""
        return self.tail.format()

    def written(self, *calls: tuple[str, dict[str, Any]]) -> str:
        """A turn of these calls (name and arguments)."""
        inner = self.between.join(self._call(name, given, index) for index, (name, given) in enumerate(calls))
        return self.section[0] + inner + self.section[1]

    def _call(self, name: str, given: dict[str, Any], index: int) -> str:
        form = self.arguments
        if form is None:
            body = json.dumps(given, ensure_ascii=False)
        else:
            body = form.between.join(
                form.opened(key, isinstance(value, str))
                + (value if isinstance(value, str) and form.strings == "raw" else json.dumps(value, ensure_ascii=False))
                + form.closed(key, isinstance(value, str))
                for key, value in given.items()
            )
        return self.open_call(name, index) + body + self.close_call()


def json_object(
    before: str, after: str, *, key: str = "name", arguments: str = "arguments", between: str = "\n",
    single: bool = False,
) -> CallForm:  # fmt: skip
    """A JSON object with name and arguments for each call, between markers."""
    head = before + f'{{{{"{key}": "{{name}}", "{arguments}": '
    return CallForm(head=head, tail="}}" + after, between=between, single=single)


def json_list(
    before: str, after: str, *, key: str = "name", arguments: str = "arguments", between: str = ", "
) -> CallForm:
    """A list of such objects, between markers."""
    head = f'{{{{"{key}": "{{name}}", "{arguments}": '
    return CallForm(section=(before, after), head=head, tail="}}", between=between)
