"""The capture format: one JSON text per line, first a head, then one line for each turn.

Promise: a line holds everything that decided a turn and everything that came of it. A file of another format version is
refused by name; fields that a later version adds are ignored. docs/capture.md has the tables.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from turnwire.turns import Event, FinishReason
from turnwire.unreadable import UNREADABLE

__all__ = [
    "FORMAT",
    "MASKED",
    "CaptureError",
    "CaptureHead",
    "CapturedModel",
    "CapturedPrompt",
    "CapturedRequest",
    "CapturedTurn",
    "DoneStep",
    "EventStep",
    "FailedStep",
    "Line",
    "ParsedBlock",
    "Step",
    "TokenStep",
    "decode_line",
    "encode_line",
]

FORMAT = 1
"""The version of the format that is written, and the only one that is read."""
MASKED = -1
"""Stands for a token id that would have revealed a secret."""


class CaptureError(ValueError):
    """A capture that cannot be used; the message says what to do."""


class _Compact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Written without its defaults."""


class CapturedModel(_Compact, frozen=True):
    """A served model when the capture began. `capabilities` are its engine's; `template` and `tokenizer` are
    fingerprints: two gateways with equal ones write equal prompts. `settings` are those that decide what prompts and
    answers look like."""

    id: str
    engine: str
    dialect: str
    window: int
    template: str
    tokenizer: str
    capabilities: dict[str, Any]
    engine_version: str | None = None
    aliases: tuple[str, ...] = ()
    settings: dict[str, Any] = {}


class CaptureHead(_Compact, frozen=True, tag="head"):
    """The first line of a file. `settings` is a fingerprint of all settings of the gateway, without secrets."""

    format: int
    turnwire: str
    python: str
    started: float
    settings: str
    models: tuple[CapturedModel, ...]


class CapturedRequest(_Compact, frozen=True):
    """What the client sent. `framing` is `lines` on a WebSocket; `route` is `compact` for /v1/responses/compact."""

    headers: dict[str, str]
    body: str
    framing: Literal["sse", "lines"] = "sse"
    route: Literal["", "compact"] = ""
    choices: int = 1


class CapturedPrompt(_Compact, frozen=True):
    """The engine's input. `sections` are (kind, index, start, end) in tokens, `stamp` is the template's clock."""

    ids: list[int]
    tail: str = ""
    sections: tuple[tuple[str, int, int, int], ...] = ()
    stamp: str = ""


class _Row(msgspec.Struct, frozen=True, array_like=True):
    """A short array with its kind in front: there is one for every batch. `at` is in seconds since the request was
    read."""


class TokenStep(_Row, frozen=True, tag="tokens"):
    """A batch: all tokens that one wake-up brought. `logprobs` are (token, value, rivals)."""

    at: float
    text: str
    ids: tuple[int, ...] = ()
    logprobs: tuple[tuple[str, float, tuple[tuple[str, float], ...]], ...] = ()


class EventStep(_Row, frozen=True, tag="events"):
    """What an engine brought that parses by itself."""

    at: float
    events: tuple[Event, ...]


class DoneStep(_Row, frozen=True, tag="done"):
    """The engine's own end, with its counts."""

    at: float
    reason: FinishReason
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    stop_sequence: str | None = None
    reasoning_tokens: int = 0


class FailedStep(_Row, frozen=True, tag="failed"):
    """Any other end."""

    at: float
    kind: str
    message: str
    retry_after: float | None = None


Step: TypeAlias = TokenStep | EventStep | DoneStep | FailedStep


class ParsedBlock(_Compact, frozen=True):
    """A block of a turn: prose or a thought as `text`, a call as `name` and `arguments`."""

    kind: Literal["text", "reasoning", "tool_call"]
    text: str = ""
    name: str = ""
    arguments: Any = None


class CapturedTurn(_Compact, frozen=True, tag="turn"):
    """One turn. `at` is when its request had been read (unix seconds); all other times are seconds after that.
    `steps` are what the engine pushed, `answer` what was written to the client, `beats` when signs of life were.
    `verdict` is what continuity said; `output_ids` are the turn's tokens as they will be replayed, which are the
    engine's except where the gateway cut or added some. `summary` is the turn's line of /admin/turns. `redacted`
    counts what was replaced; `hosted` says that the gateway ran tools of its own for the answer; `place` is how many
    assistant turns came before it. `blocks` are what the output was parsed into; `spelled` gives the text of ids that
    no earlier line of the file spelled. In a repro bundle a turn may say what it should have been parsed into
    (`expected`), and one that is only there to be recalled is a `memory`. `imported` names the harness from whose own
    transcript a turn was made: it has neither ids nor bytes."""

    turn_id: str
    api: str
    model: str
    tenant: str
    at: float
    created: int
    dispatch: bool
    request: CapturedRequest
    prompt: CapturedPrompt
    steps: tuple[Step, ...]
    answer: tuple[tuple[float, str], ...]
    output_ids: list[int]
    call_ids: tuple[str, ...] = ()
    beats: tuple[float, ...] = ()
    verdict: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    session: str | None = None
    parent: str | None = None
    agent: str | None = None
    client: str | None = None
    turn_class: str = "main"
    finish: str = ""
    ended_by: str | None = None
    failure: str | None = None
    notes: tuple[tuple[str, str], ...] = ()
    redacted: int = 0
    hosted: bool = False
    place: int = 0
    blocks: tuple[ParsedBlock, ...] = ()
    spelled: dict[int, str] = {}
    expected: tuple[ParsedBlock, ...] | None = None
    memory: bool = False
    imported: str = ""

    @property
    def text(self) -> str:
        """The raw model output, as the engine's batches spell it."""
        return "".join(step.text for step in self.steps if isinstance(step, TokenStep))

    @property
    def answered(self) -> str:
        """Everything the client was sent."""
        return "".join(text for _, text in self.answer)

    @property
    def seconds(self) -> float:
        """From the request to the last thing known of the turn."""
        return max([at for at, _ in self.answer[-1:]] + [step.at for step in self.steps[-1:]], default=0.0)


Line: TypeAlias = CaptureHead | CapturedTurn

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class _Version(msgspec.Struct):
    type: str = ""
    format: int | None = None


def encode_line(line: Line) -> bytes:
    """The line with its end."""
    return _encoder.encode(line) + b"\n"


def decode_line(data: bytes) -> Line:
    """A line of a file, or CaptureError."""
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError as error:
        version = _version(data)
        if version.type == "head" and version.format != FORMAT:
            raise CaptureError(
                f"This capture has format {version.format}; this version of Turnwire reads format {FORMAT}. "
                "Use the version that wrote it."
            ) from None
        raise CaptureError(f"A line is not part of a capture: {error}") from None
    except UNREADABLE as error:
        raise CaptureError(f"A line is not JSON: {error}") from None


def _version(data: bytes) -> _Version:
    try:
        return msgspec.json.decode(data, type=_Version)
    except UNREADABLE:
        return _Version()
