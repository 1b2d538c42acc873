"""A harness's own transcripts, told apart by what they hold, as one capture.

Promise: secrets are replaced before anything else reads a line, as in a capture. A file that is neither harness's, or
holds no answer of a model, is an error that says so; a line that is not JSON is the end of its file, since a harness
may still be writing it.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from turnwire import __version__
from turnwire.capture.format import FORMAT, CapturedModel, CapturedTurn, CaptureError, CaptureHead, Line
from turnwire.capture.redaction import Redactor
from turnwire.capture.transcripts import claude, codex
from turnwire.unreadable import UNREADABLE

__all__ = ["import_transcripts"]

_FORMS: dict[str, tuple[Callable[[dict[str, Any]], bool], Callable[[Iterable[dict[str, Any]]], list[CapturedTurn]]]] = {
    claude.SOURCE: (lambda line: "sessionId" in line, claude.claude_turns),
    codex.SOURCE: (lambda line: line.get("type") == "session_meta" and "payload" in line, codex.codex_turns),
}


def import_transcripts(files: Iterable[tuple[str, Iterable[bytes]]], redactor: Redactor) -> list[Line]:
    """The head and the turns of named files, oldest first, or CaptureError."""
    turns: list[CapturedTurn] = []
    for name, lines in files:
        turns += _turns(name, lines, redactor)
    if not turns:
        raise CaptureError("No turn of a model is in there.")
    turns.sort(key=lambda turn: turn.at)
    models = {turn.model: turn.imported for turn in turns}
    head = CaptureHead(
        format=FORMAT,
        turnwire=__version__,
        python=platform.python_version(),
        started=turns[0].at,
        settings="",
        models=tuple(
            CapturedModel(
                id=model,
                engine=source,
                dialect="plain",
                window=1 << 20,
                template="",
                tokenizer="",
                capabilities={"yields": "events", "cached_tokens": True, "images": True},
            )
            for model, source in models.items()
        ),
    )
    return [head, *turns]


def _turns(name: str, lines: Iterable[bytes], redactor: Redactor) -> list[CapturedTurn]:
    count = 0

    def clean() -> Iterator[dict[str, Any]]:
        nonlocal count
        for line in lines:
            text, found = redactor.text(line.decode("utf-8", "replace"))
            count += found
            try:
                read = msgspec.json.decode(text)
            except UNREADABLE:
                return
            if isinstance(read, dict):
                yield read

    rest = clean()
    for line in rest:
        for fits, read_turns in _FORMS.values():
            if fits(line):
                return [msgspec.structs.replace(turn, redacted=count) for turn in read_turns(_chained(line, rest))]
    raise CaptureError(
        f"{name} is no transcript of Claude Code (~/.claude/projects/*/*.jsonl) and no rollout of Codex "
        "(~/.codex/sessions/**/rollout-*.jsonl)."
    )


def _chained(first: dict[str, Any], rest: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield first
    yield from rest
