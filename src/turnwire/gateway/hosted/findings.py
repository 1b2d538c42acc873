"""What a server answered: findings with titles and addresses, or what a program wrote.

Promise: pure functions. Whatever shape the answer has, the model reads all of it within the limit; where titles and
addresses, or a program's two outputs, can be told apart, the client gets them too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnwire.turns import CodeRun, Finding
from turnwire.unreadable import UNREADABLE

__all__ = ["code_run", "cut", "findings"]

_TITLES = ("title", "name", "filename", "file_name")
_ADDRESSES = ("url", "link", "href", "uri")
_FILES = ("file_id", "filename", "file_name", "path", "id")
_CODES = ("return_code", "returncode", "exit_code", "exitCode")
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


def code_run(structured: object, texts: Sequence[str], failed: bool, limit: int) -> CodeRun:
    """What a program wrote, at most `limit` bytes of it. A server that keeps the two outputs and the code apart says
    so in an object; of any other the text is the output, or the error where it calls its answer one."""
    told = structured if isinstance(structured, dict) else _json(texts[0]) if len(texts) == 1 else None
    if not isinstance(told, dict) or not isinstance(told.get("stdout"), str):
        text = cut("\n".join(texts), limit)
        return CodeRun(stderr=text, return_code=1) if failed else CodeRun(stdout=text)
    stdout = cut(told["stdout"], limit)
    stderr = cut(_first(told, ("stderr",)), limit - len(stdout.encode()))
    code = next((value for name in _CODES if isinstance(value := told.get(name), int)), int(failed))
    return CodeRun(stdout=stdout, stderr=stderr, return_code=int(code))


def cut(text: str, limit: int) -> str:
    """The text within so many bytes."""
    data = text.encode()
    return text if len(data) <= limit else data[: max(limit, 0)].decode(errors="ignore")


def _finding(row: Mapping[str, Any], number: int, left: int) -> Finding:
    title, url, text, age = (_first(row, names) for names in (_TITLES, _ADDRESSES, _TEXTS, _AGES))
    read = "\n".join(part for part in (f"[{number}] {title}".rstrip(), url, text) if part)
    score = row.get("score")
    return Finding(
        title=title or url,
        url=url,
        text=cut(f"{read}\n\n", left),
        age=age,
        file=_first(row, _FILES),
        score=float(score) if isinstance(score, int | float) else None,
    )


def _rows(value: object) -> list[Mapping[str, Any]]:
    """The results in a JSON value: a list of objects with addresses, or an object that holds one."""
    if isinstance(value, dict):
        lists = (value.get(name) for name in ("results", "result", "web", "items", "data", "organic"))
        return next((rows for each in lists if (rows := _rows(each))), [])
    if not isinstance(value, list):
        return []
    return [each for each in value if isinstance(each, dict) and _first(each, (*_ADDRESSES, *_FILES))]


def _json(text: str) -> object:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return msgspec.json.decode(text)
    except UNREADABLE:
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
