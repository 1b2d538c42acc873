"""What a search server answered, as findings with titles and addresses.

Promise: pure functions. Whatever shape the answer has, the model reads all of it within the limit; where titles and
addresses can be told apart, the client gets them too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnwire.turns import Finding

__all__ = ["cut", "findings"]

_TITLES = ("title", "name")
_ADDRESSES = ("url", "link", "href", "uri")
_TEXTS = ("content", "snippet", "description", "text", "body", "summary")
_AGES = ("page_age", "age", "published", "published_date", "date")
_LINE = re.compile(r"^\s*(title|url|link|description|snippet|content|text)\s*:\s*(.*)$", re.IGNORECASE)
_MOST = 50


def findings(structured: object, texts: Sequence[str], limit: int) -> tuple[Finding, ...]:
    """The findings of an answer, at most `limit` bytes of text in all."""
    rows = _rows(structured) or [row for text in texts for row in (_rows(_json(text)) or _lines(text))]
    found: list[Finding] = []
    left = limit
    for row in rows[:_MOST]:
        one = _finding(row, len(found) + 1, left)
        left -= len(one.text.encode())
        found.append(one)
        if left <= 0:
            break
    if found:
        return tuple(found)
    whole = cut("\n\n".join(text for text in texts if text), limit)
    return (Finding(title="", url="", text=whole),) if whole else ()


def cut(text: str, limit: int) -> str:
    """The text within so many bytes."""
    data = text.encode()
    return text if len(data) <= limit else data[: max(limit, 0)].decode(errors="ignore")


def _finding(row: Mapping[str, Any], number: int, left: int) -> Finding:
    title, url, text, age = (_first(row, names) for names in (_TITLES, _ADDRESSES, _TEXTS, _AGES))
    read = "\n".join(part for part in (f"[{number}] {title}".rstrip(), url, text) if part)
    return Finding(title=title or url, url=url, text=cut(f"{read}\n\n", left), age=age)


def _rows(value: object) -> list[Mapping[str, Any]]:
    """The results in a JSON value: a list of objects with addresses, or an object that holds one."""
    if isinstance(value, dict):
        lists = (value.get(name) for name in ("results", "result", "web", "items", "data", "organic"))
        return next((rows for each in lists if (rows := _rows(each))), [])
    if not isinstance(value, list):
        return []
    return [each for each in value if isinstance(each, dict) and _first(each, _ADDRESSES)]


def _json(text: str) -> object:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _lines(text: str) -> list[Mapping[str, Any]]:
    """Results that are written as lines `Title: ...`, `URL: ...`, one after another."""
    rows: list[dict[str, str]] = []
    row: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            if last and line.strip():
                row[last] = f"{row[last]}\n{line}"
            continue
        name = match.group(1).lower()
        if name in row:
            rows.append(row)
            row = {}
        row[name], last = match.group(2), name
    if row:
        rows.append(row)
    return [row for row in rows if _first(row, _ADDRESSES)]


def _first(row: Mapping[str, Any], names: Sequence[str]) -> str:
    for name in names:
        value = row.get(name)
        if isinstance(value, str) and value:
            return value
    return ""
