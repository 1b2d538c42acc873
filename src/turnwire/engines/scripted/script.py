"""The script of the scripted engine: model output in a JSON Lines file, cut into tokens once and kept.

Promise: a file either loads whole or is refused with the line and the key at fault; `Script.line_for` is a pure
function of the conversation; the pieces of a line are cut when the line is first played and shared by every stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from turnwire.engines.interface import EngineError, TokenBatch, TokenLogprob
from turnwire.turns import Conversation, FinishReason, Sampling
from turnwire.unreadable import UNREADABLE

__all__ = ["Line", "Performance", "Script", "ScriptError", "ScriptTokenizer"]


class _Detokenizer(Protocol):
    def feed(self, ids: Sequence[int]) -> str: ...

    def flush(self) -> str: ...


class ScriptTokenizer(Protocol):
    """The part of a tokenizer that playing a script needs."""

    def encode(self, text: str) -> list[int]: ...

    def detokenizer(self, *, skip_special: bool = False) -> _Detokenizer: ...


class ScriptError(ValueError):
    """A script that cannot be played; the message names file, line and key."""


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the file; docs/engines.md is the table of these keys."""

    text: str
    finish: Literal["stop", "length", "error", "disconnect", "hang"] = "stop"
    first_delay_ms: float = 0
    delay_ms: float = 0
    cut: Literal["token", "all"] | int = "token"
    match: str | None = None
    burst: int = 8
    after: int | None = None
    error: Literal["overloaded", "context_overflow", "invalid_request", "timeout", "internal", "unreachable"] = (
        "internal"
    )
    message: str = "the script ends this generation with an error"
    prefill_tokens_per_s: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.cut, int) and self.cut < 1:
            raise ValueError("`cut` must be `token`, `all` or a number of characters above 0")
        if self.burst < 1:
            raise ValueError("`burst` must be above 0")
        if self.first_delay_ms < 0 or self.delay_ms < 0 or (self.after or 0) < 0:
            raise ValueError("delays and `after` must not be negative")
        if self.prefill_tokens_per_s is not None and self.prefill_tokens_per_s <= 0:
            raise ValueError("`prefill_tokens_per_s` must be above 0")


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """What one request receives: its batches in order, the ids of all of them, and how it ends. `reason` is None
    where the engine fails after these batches instead of finishing."""

    batches: tuple[TokenBatch, ...]
    ids: tuple[int, ...]
    reason: FinishReason | None
    stop_sequence: str | None = None


_OPENED, _CLOSED = "<think>", "</think>"


class _Tokens(msgspec.Struct, frozen=True):
    """A line's text as tokens: `ends[i]` is where token i's text ends."""

    ids: tuple[int, ...]
    texts: tuple[str, ...]
    ends: tuple[int, ...]
    text: str


class Script:
    """The lines of a file, ready to be played with one tokenizer."""

    def __init__(self, lines: Sequence[Line], tokenizer: ScriptTokenizer) -> None:
        if not lines:
            raise ScriptError('the script holds no line; write at least one JSON object such as {"text": "Hello."}')
        self._tokenizer = tokenizer
        self._main = [line for line in lines if line.match is None]
        self._matched: dict[str, list[Line]] = {}
        for line in lines:
            if line.match is not None:
                self._matched.setdefault(line.match, []).append(line)
        self._thought_opened = [tuple(tokenizer.encode(_OPENED + gap)) for gap in ("", "\n", "\n\n")]
        self._tokens: dict[str, _Tokens] = {}
        self._whole: dict[Line, Performance] = {}
        self.changed_by_tokenizer = [
            number for number, line in enumerate(lines, 1) if self._tokens_of(line.text).text != line.text
        ]

    @classmethod
    def load(cls, path: str | Path, tokenizer: ScriptTokenizer) -> Script:
        """Read a script file, or raise ScriptError that says what to change."""
        try:
            source = Path(path).read_bytes()
        except OSError as error:
            raise ScriptError(f"cannot read the script {path}: {error.strerror or error}") from error
        lines = []
        for number, row in enumerate(source.splitlines(), 1):
            if not row.strip():
                continue
            try:
                lines.append(msgspec.json.decode(row, type=Line))
            except UNREADABLE as error:
                raise ScriptError(f"{path}, line {number}: {error}") from error
        try:
            return cls(lines, tokenizer)
        except ScriptError as error:
            raise ScriptError(f"{path}: {error}") from error

    def line_for(self, conversation: Conversation) -> Line:
        """The line that answers a conversation holding k assistant turns: line k (the last repeats) of the lines
        whose `match` is found in the last user text, else of the lines without `match`."""
        lines = self._main
        if self._matched:
            text = conversation.last_user_text
            lines = next((group for match, group in self._matched.items() if match in text), lines)
        if not lines:
            raise EngineError(
                "invalid_request", "no line of the script answers this request: every line has `match` and none fits"
            )
        return lines[min(conversation.assistant_turns, len(lines) - 1)]

    def after_prompt(self, line: Line, prompt_ids: Sequence[int]) -> Line:
        """The line as it is said after a prompt. Where the prompt has opened a thought and the line neither thinks nor
        ends a thought, it ends that one first, as a model with nothing to think does."""
        if _CLOSED in line.text or line.text.lstrip().startswith(_OPENED):
            return line
        if not any(tuple(prompt_ids[-len(opened) :]) == opened for opened in self._thought_opened):
            return line
        ending = f"{_CLOSED}\n\n"
        after = line.after + len(self._tokens_of(ending).ids) if line.after else line.after
        return msgspec.structs.replace(line, text=ending + line.text, after=after)

    def perform(self, line: Line, sampling: Sampling) -> Performance:
        """Cut a line as `sampling` demands (max_tokens, stop strings, logprobs)."""
        tokens = self._tokens_of(line.text)
        count, text_end = len(tokens.ids), len(tokens.text)
        reason: FinishReason | None = None
        stopped_by: str | None = None
        for stop in sampling.stop:
            at = tokens.text.find(stop) if stop else -1
            if at >= 0 and (at < text_end or stopped_by is None):
                text_end, stopped_by, reason = at, stop, "stop_sequence"
        if stopped_by is not None:
            count = next(i + 1 for i, end in enumerate(tokens.ends) if end >= text_end + len(stopped_by))
        if sampling.max_tokens is not None and sampling.max_tokens < count:
            count = max(sampling.max_tokens, 0)
            text_end = min(text_end, tokens.ends[count - 1] if count else 0)
            reason, stopped_by = "length", None
        if reason is None and sampling.logprobs is None:
            whole = self._whole.get(line)
            if whole is None:
                whole = self._whole[line] = self._cut(line, tokens, count, text_end, None, None, logprobs=False)
            return whole
        return self._cut(line, tokens, count, text_end, reason, stopped_by, logprobs=sampling.logprobs is not None)

    def _tokens_of(self, text: str) -> _Tokens:
        tokens = self._tokens.get(text)
        if tokens is None:
            ids = tuple(self._tokenizer.encode(text))
            detokenizer = self._tokenizer.detokenizer()
            texts = [detokenizer.feed((token,)) for token in ids]
            if texts:
                texts[-1] += detokenizer.flush()
            tokens = self._tokens[text] = _Tokens(ids, tuple(texts), tuple(accumulate(map(len, texts))), "".join(texts))
        return tokens

    @staticmethod
    def _cut(
        line: Line,
        tokens: _Tokens,
        count: int,
        text_end: int,
        reason: FinishReason | None,
        stop_sequence: str | None,
        *,
        logprobs: bool,
    ) -> Performance:
        if reason is None:
            if line.finish in ("stop", "length"):
                reason = "stop" if line.finish == "stop" else "length"
            else:
                count = min(line.after, count) if line.after is not None else count // 2
                text_end = tokens.ends[count - 1] if count else 0
        # A piece is (tokens up to, characters up to). A wake-up delivers one when paced, `burst` of them when not.
        if line.cut == "token":
            pieces = [(i + 1, min(tokens.ends[i], text_end)) for i in range(count)]
        else:
            width = max(text_end, 1) if line.cut == "all" else line.cut
            pieces, upto = [], 0
            for end in range(width, text_end + width, width):
                end = min(end, text_end)
                while upto < count and tokens.ends[upto] <= end:
                    upto += 1
                pieces.append((upto, end))
            if pieces:
                pieces[-1] = (count, text_end)
            elif count:
                pieces = [(count, text_end)]
        if not line.delay_ms and line.burst > 1:
            pieces = [*pieces[line.burst - 1 :: line.burst], *([pieces[-1]] if len(pieces) % line.burst else [])]
        batches, at, start = [], 0, 0
        for upto, end in pieces:
            batches.append(
                TokenBatch(
                    tokens.text[start:end],
                    tokens.ids[at:upto],
                    # A script is certain of its words: probability one, and no rival.
                    tuple(TokenLogprob(text, 0.0, ((text, 0.0),)) for text in tokens.texts[at:upto])
                    if logprobs
                    else (),
                )
            )
            at, start = upto, end
        return Performance(batches=tuple(batches), ids=tokens.ids[:count], reason=reason, stop_sequence=stop_sequence)
