"""The OpenAI completions stream, as engines extend it with token ids: its values, and one way to read it.

Promise: a chunk is decoded straight into typed values and unknown fields are passed over; what all chunks of a stream
begin and end with is read once; the end token is kept apart from the text's tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.engines.failures import ended_by, failure
from turnwire.engines.http.answer import CHUNK_SIZES
from turnwire.engines.http.engine import Reading
from turnwire.engines.http.frame import Frame, frame_of
from turnwire.engines.interface import Completion, EngineError, TokenBatch, TokenLogprob
from turnwire.turns import FinishReason
from turnwire.unreadable import UNREADABLE

__all__ = [
    "Choice",
    "Chunk",
    "CompletionsReading",
    "Logprobs",
    "UsageCounts",
    "decode_chunks",
    "failed",
    "failed_with",
    "token_logprobs",
]

UNLIKELY = -9999.0
"""What servers write for a log probability that JSON cannot hold."""

_FINISH: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "repetition": "stop",
}


class Logprobs(msgspec.Struct, gc=False):
    """Log probabilities, position by position."""

    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float | None] | None] = []


class Choice(msgspec.Struct, gc=False):
    """What is new of the one choice asked for."""

    text: str = ""
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: tuple[int, ...] | None = None


class PromptDetails(msgspec.Struct, gc=False):
    """Where the prompt came from."""

    cached_tokens: int | None = None


class OutputDetails(msgspec.Struct, gc=False):
    """What the output was."""

    reasoning_tokens: int | None = None


class UsageCounts(msgspec.Struct, gc=False):
    """The engine's own counts."""

    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: OutputDetails | None = None


class Chunk(msgspec.Struct, gc=False):
    """One event."""

    choices: list[Choice] = []
    usage: UsageCounts | None = None
    error: dict[str, Any] | str | None = None
    message: str | None = None
    code: int | None = None


decode_chunks = msgspec.json.Decoder(list[Chunk]).decode
_decode_choice = msgspec.json.Decoder(Choice).decode
_decode_choices = msgspec.json.Decoder(Choice).decode_lines


class CompletionsReading(Reading):
    """A `/v1/completions` stream with token ids. The last sampled id of a stop without stop string is the end token."""

    def __init__(self, engine: str, prompt_tokens: int) -> None:
        self.end, self.error = None, None
        self._engine = engine
        self._prompt = prompt_tokens
        self._output = 0
        self._reason: FinishReason | None = None
        self._stop: str | None = None
        self._ended = False
        self._frame: Frame | None = None
        self._learnt = False

    def chunk(self, data: bytes) -> TokenBatch | None:
        # Nearly every token comes here, in one function: each call within it would cost as much as its longest step.
        frame = self._frame
        if frame is None:
            return None
        at, opening = data.find(b"\r\n", 0, 8) + 2, frame.opening
        if (
            len(data) != at + 2 + CHUNK_SIZES.get(data[: at - 2], -1)
            or not data.startswith(opening, at)
            or not data.endswith(frame.chunk_closing)
            or data.find(b"\n", at) != len(data) - 4
        ):
            return None
        try:
            choice = _decode_choice(data[at + len(opening) - 1 : -1 - len(frame.closing)])
        except UNREADABLE:
            return None
        if choice.finish_reason is not None:
            return None
        if choice.logprobs is not None:
            return self._joined([choice])
        text, sampled = choice.text, choice.token_ids or ()
        self._output += len(sampled)
        return TokenBatch(text, sampled) if text or sampled else None

    def running(self, events: bytes) -> TokenBatch | None:
        frame = self._frame
        if frame is None:
            return self._first(events)
        if not events.startswith(frame.opening) or not events.endswith(frame.closing):
            return None
        if events.find(b"\n") < len(events) - 2:
            return self._several(events, frame)
        try:
            choice = _decode_choice(events[frame.choice])
        except UNREADABLE:
            # Whether it is the event or the frame that does not fit is seen where the whole event is read.
            return None
        return self._joined([choice])

    def _first(self, events: bytes) -> TokenBatch | None:
        """The first events of a stream show what the others are like, or that they are all to be looked into. Where
        they are the last ones too, there are no others."""
        if self._learnt or not events or events.endswith(b"[DONE]\n\n"):
            return None
        self._learnt, self._frame = True, frame_of(events)
        self.knows = self._frame is not None
        return self.running(events) if self.knows else None

    def _several(self, events: bytes, frame: Frame) -> TokenBatch | None:
        inside = frame.choices(events)
        if inside is None:
            return None
        lines, count = inside
        try:
            choices = _decode_choices(lines)
        except UNREADABLE:
            return None
        # As many values as lines: each line is one, for no JSON value goes on after a brace, a line end and a brace.
        return self._joined(choices) if len(choices) == count else None

    def feed(self, events: bytes) -> TokenBatch | None:
        chunks = decode_chunks(events)
        choices: list[Choice] = []
        usage: UsageCounts | None = None
        for chunk in chunks:
            if chunk.usage is not None:
                usage = chunk.usage
            if chunk.choices:
                choices.append(chunk.choices[0])
            elif chunk.error is not None or chunk.message is not None:
                self.error = failed(self._engine, chunk)
        batch = self._joined(choices)
        if self._reason is not None and usage is not None:
            self.end = self._completion(usage)
        return batch

    def _joined(self, choices: list[Choice]) -> TokenBatch | None:
        """All that is new as one batch."""
        ids: list[int] = []
        logprobs: list[TokenLogprob] = []
        for choice in choices:
            if choice.token_ids:
                ids += choice.token_ids
            if choice.logprobs is not None:
                logprobs += token_logprobs(choice.logprobs)
            if choice.finish_reason is not None:
                self._finish(choice, ids, logprobs)
        self._output += len(ids)
        text = "".join([choice.text for choice in choices])
        return TokenBatch(text, tuple(ids), tuple(logprobs)) if text or ids else None

    def close(self) -> Completion | None:
        """The completion, also of a server that reported no usage."""
        if self.end is None and self._reason is not None:
            self.end = self._completion(None)
        return self.end

    def _finish(self, choice: Choice, ids: list[int], logprobs: list[TokenLogprob]) -> None:
        self._reason = _FINISH.get(choice.finish_reason or "")
        if self._reason is None:
            self.error = ended_by(self._engine, choice.finish_reason)
        if self._reason != "stop":
            return
        if isinstance(choice.stop_reason, str):
            self._reason, self._stop = "stop_sequence", choice.stop_reason
        elif choice.finish_reason == "stop" and ids:
            ids.pop()
            self._ended = True
            del logprobs[len(ids) :]

    def _completion(self, usage: UsageCounts | None) -> Completion:
        sampled = self._output + self._ended
        if usage is None:
            return Completion(self._reason or "stop", self._prompt, sampled, 0, self._stop)
        details = usage.prompt_tokens_details
        return Completion(
            self._reason or "stop",
            usage.prompt_tokens or self._prompt,
            usage.completion_tokens or sampled,
            (details.cached_tokens or 0) if details else 0,
            self._stop,
        )


def failed(engine: str, chunk: Chunk) -> EngineError:
    """The failure that a chunk without choices reports."""
    if chunk.error is not None:
        return failed_with(engine, chunk.error)
    return failure(engine, chunk.message or "", status=chunk.code or 500)


def failed_with(engine: str, error: dict[str, Any] | str) -> EngineError:
    """The failure that an event's `error` reports."""
    if isinstance(error, str):
        return failure(engine, error)
    code, said = error.get("code"), str(error.get("message", ""))
    kind = str(error.get("type") or "")
    return failure(
        engine,
        said if not kind or kind in said else f"{said} ({kind})",
        status=code if isinstance(code, int) else 500,
    )


def token_logprobs(told: Logprobs) -> list[TokenLogprob]:
    tops = told.top_logprobs or [None] * len(told.tokens)
    return [
        TokenLogprob(
            token,
            UNLIKELY if value is None else value,
            tuple((rival, UNLIKELY if weight is None else weight) for rival, weight in (top or {}).items()),
        )
        for token, value, top in zip(told.tokens, told.token_logprobs, tops, strict=False)
    ]
