"""Turn records on disk, for tests and for people who want to see what went over the wire.

Promise: one JSON line per turn with the request, the prompt and the raw model output; off unless `--record` names a
folder, since it holds payloads. What cannot be written is said in the log, and the turn's client is not concerned.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec

from turnwire.continuity import header as prefix_header
from turnwire.gateway.turns.record import TurnRecord

__all__ = ["RecordedTurn", "Recorder"]

log = logging.getLogger("turnwire.records")

_SECRET = frozenset({"authorization", "x-api-key", "cookie"})


class RecordedTurn(msgspec.Struct, kw_only=True):
    """One turn as it was. `request` is the body as received (JSON)."""

    turn_id: str
    api: str
    model: str
    request: msgspec.Raw
    headers: dict[str, str]
    prompt_text: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    output_text: str
    finish: str | None
    prefix: str
    notes: list[str]
    failure: str | None = None


def _one_line(body: bytes) -> bytes:
    """The request's JSON without line breaks, which it can only have between its values; what came without a body of
    its own is null."""
    return body.replace(b"\n", b" ").replace(b"\r", b" ") if body else b"null"


def _writable(text: str) -> str:
    """The text with a question mark for each half of a character."""
    return text.encode("utf-8", "replace").decode()


class Recorder:
    """Appends records to `turns.jsonl` in a folder."""

    def __init__(self, folder: str) -> None:
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        self._path = path / "turns.jsonl"

    def write(self, turn: TurnRecord[Any]) -> None:
        """One line for one turn, on disk before the client sees its end."""
        outcome = turn.outcome
        assert outcome is not None
        decode = turn.runtime.tokenizer.decode
        record = RecordedTurn(
            turn_id=turn.turn_id,
            api=turn.api,
            model=_writable(turn.inbound.conversation.model),
            request=msgspec.Raw(_one_line(turn.body)),
            headers={name: value for name, value in turn.headers.items() if name not in _SECRET},
            prompt_text=decode(turn.prompt.ids),
            prompt_tokens=len(turn.prompt.ids),
            cached_tokens=outcome.usage.cached,
            output_tokens=outcome.usage.output,
            output_text=_writable(outcome.text),
            finish=outcome.finish.reason if outcome.finish else None,
            prefix=prefix_header(turn.continuity),
            notes=[note.code for note in turn.notes],
            failure=_writable(outcome.failure.message) if outcome.failure else None,
        )
        try:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(record) + b"\n")
        except OSError as error:
            log.error("turn %s was not recorded: %s", turn.turn_id, error)
