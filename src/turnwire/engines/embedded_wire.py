"""What is said to the llama.cpp server in this process: request bodies out, streamed chunks in, tokens with exact ids.

Promise: every token the engine counted is accounted for. llama.cpp holds back tokens that end inside a code point and
then tells only the last id of the group; the ids in between are worked out from the bytes that became visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from turnwire.engines.interface import Completion, Constraint, EngineError, GenerateRequest, TokenBatch, TokenLogprob
from turnwire.turns import FinishReason

__all__ = ["Chunk", "EventSplitter", "Piece", "Reading", "StopHold", "TokenStream", "completion_body", "refusal"]

_EVENT_LIMIT = 4 * 1024 * 1024


class Rival(msgspec.Struct, gc=False):
    """One entry of llama.cpp's probability list."""

    token: str = ""
    logprob: float = 0.0
    top_logprobs: tuple[Rival, ...] = ()


class PromptProgress(msgspec.Struct, gc=False):
    """How far the prompt is read; `cache` of it needed no reading."""

    cache: int = 0


class Chunk(msgspec.Struct, gc=False):
    """One streamed event of `/completion`."""

    content: str = ""
    tokens: tuple[int, ...] = ()
    stop: bool = False
    stop_type: str = ""
    tokens_predicted: int = 0
    prompt_progress: PromptProgress | None = None
    completion_probabilities: tuple[Rival, ...] = ()
    error: dict[str, Any] | None = None


class Piece(msgspec.Struct, frozen=True, gc=False):
    """A run of text with the ids that spell it; almost always one token."""

    text: str
    ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()


def completion_body(request: GenerateRequest) -> dict[str, object]:
    """The `/completion` request. Stop strings stay with us, because llama.cpp forgets the ids of what it holds back;
    a sampling wish that is None is left to the model's own default."""
    sampling = request.sampling
    body: dict[str, object] = {
        "prompt": list(request.prompt_ids),
        "stream": True,
        "return_tokens": True,
        "return_progress": True,
        "cache_prompt": True,
        "n_predict": -1 if sampling.max_tokens is None else sampling.max_tokens,
    }
    wishes = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repeat_penalty": sampling.repetition_penalty,
        "seed": sampling.seed,
    }
    body.update((name, value) for name, value in wishes.items() if value is not None)
    if sampling.logprobs is not None:
        body["n_probs"] = max(1, sampling.logprobs)
    if sampling.logit_bias:
        body["logit_bias"] = [[int(token), bias] for token, bias in sampling.logit_bias.items()]
    body.update(_guidance(request.constraint))
    return body


def _guidance(constraint: Constraint | None) -> dict[str, object]:
    if constraint is None:
        return {}
    if constraint.gbnf is not None:
        return {"grammar": constraint.gbnf}
    if constraint.json_schema is not None:
        return {"json_schema": constraint.json_schema}
    raise EngineError("invalid_request", "The embedded engine follows json_schema and gbnf constraints only.")


def refusal(status: int, body: bytes) -> EngineError:
    """llama.cpp's answer to a request it will not run, in neutral words."""
    message, kind = body[:500].decode("utf-8", "replace"), ""
    try:
        error = msgspec.json.decode(body)["error"]
        message, kind = str(error["message"]), str(error.get("type", ""))
    except (msgspec.DecodeError, KeyError, TypeError):
        pass
    if kind == "exceed_context_size_error" or "context size" in message.lower():
        return EngineError("context_overflow", f"The prompt does not fit the model's context window: {message}.")
    if status in (400, 422):
        return EngineError("invalid_request", f"The embedded engine refused the request: {message}.")
    if status in (429, 503):
        return EngineError("overloaded", f"The embedded engine takes no work now: {message}.", retry_after=1.0)
    return EngineError("internal", f"The embedded engine failed: {message}.")


class EventSplitter:
    """Cuts a byte stream into the JSON payloads of its server-sent events; work is linear in the bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The payloads completed by `data`. Comments (keep-alive pings) are passed over."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _EVENT_LIMIT:
            raise EngineError("internal", "The embedded engine sent an event of more than 4 MiB.")
        for line in lines:
            name, _, payload = line.rstrip(b"\r").partition(b": ")
            if name in (b"data", b"error") and payload != b"[DONE]":
                yield payload if name == b"data" else b'{"error":' + payload + b"}"


class TokenStream:
    """Turns chunks into pieces. `fragments` maps the bytes of every vocabulary entry that is no whole text by itself
    to its id; without it, ids that llama.cpp left out cannot be told and the piece carries none."""

    def __init__(self, fragments: Mapping[bytes, int] | None = None) -> None:
        self._fragments = fragments or {}
        self._names = {token: spelling for spelling, token in self._fragments.items()}
        self._told = 0

    def piece(self, chunk: Chunk) -> Piece:
        """The piece behind a chunk that is not the last."""
        count, self._told = chunk.tokens_predicted - self._told, chunk.tokens_predicted
        ids = chunk.tokens if count <= 1 else self._recover(chunk.content, count, chunk.tokens)
        return Piece(chunk.content, ids, tuple(_logprob(entry) for entry in chunk.completion_probabilities))

    def _recover(self, text: str, count: int, told: Sequence[int]) -> tuple[int, ...]:
        spelling = text.encode("utf-8")
        last = self._names.get(told[-1]) if told else None
        if last is None or not spelling.endswith(last):
            return ()
        found = _partition(spelling[: len(spelling) - len(last)], count - 1, self._fragments)
        return (*found, told[-1]) if found is not None else ()


def _logprob(entry: Rival) -> TokenLogprob:
    return TokenLogprob(entry.token, entry.logprob, tuple((r.token, r.logprob) for r in entry.top_logprobs))


def _partition(spelling: bytes, parts: int, fragments: Mapping[bytes, int]) -> tuple[int, ...] | None:
    """`spelling` cut into exactly `parts` fragments, longest first (as byte-pair merging does); None where it cannot.
    A group is one code point plus at most a word, so the search is short."""
    if parts == 0:
        return () if not spelling else None
    if len(spelling) < parts:
        return None
    for size in range(len(spelling) - parts + 1, 0, -1):
        token = fragments.get(spelling[:size])
        if token is not None:
            rest = _partition(spelling[size:], parts - 1, fragments)
            if rest is not None:
                return (token, *rest)
    return None


class StopHold:
    """Finds stop strings across pieces. Text that may be the start of one is held back, whole tokens at a time."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held: list[Piece] = []
        self._text = ""

    def feed(self, pieces: list[Piece]) -> tuple[list[Piece], str | None]:
        """Pieces that are safe to pass on, and the stop string that was met. A token that only begins before the stop
        gives its leading text and no id."""
        if not self._stops:
            return pieces, None
        self._held.extend(pieces)
        self._text += "".join(piece.text for piece in pieces)
        met = min(
            ((at, stop) for stop in self._stops if (at := self._text.find(stop)) >= 0),
            key=lambda hit: (hit[0], -len(hit[1])),
            default=None,
        )
        if met is not None:
            released = self._release(met[0])
            cut = met[0] - sum(len(piece.text) for piece in released)
            if cut:
                released.append(Piece(self._text[:cut], ()))
            return released, met[1]
        return self._release(len(self._text) - self._tail()), None

    def flush(self) -> list[Piece]:
        """What is still held when the engine ends."""
        return self._release(len(self._text))

    def _tail(self) -> int:
        longest = max(len(stop) for stop in self._stops) - 1
        for size in range(min(longest, len(self._text)), 0, -1):
            if any(stop.startswith(self._text[-size:]) for stop in self._stops):
                return size
        return 0

    def _release(self, limit: int) -> list[Piece]:
        taken = length = 0
        for piece in self._held:
            if length + len(piece.text) > limit:
                break
            taken, length = taken + 1, length + len(piece.text)
        released, self._held = self._held[:taken], self._held[taken:]
        self._text = self._text[length:]
        return released


class Reading:
    """One generation's stream: bytes in, batches and the completion out. The token that ends the turn is in
    no batch."""

    def __init__(self, request: GenerateRequest, fragments: Mapping[bytes, int] | None) -> None:
        self._tokens = TokenStream(fragments)
        self._splitter = EventSplitter()
        self._decoder = msgspec.json.Decoder(Chunk)
        self._hold = StopHold(request.sampling.stop)
        self._stop_ids = frozenset(request.stop_token_ids)
        self._prompt = len(request.prompt_ids)
        self._cached = 0
        self._output = 0
        self._doubtful: Piece | None = None

    def feed(self, data: bytes) -> tuple[TokenBatch | None, Completion | None]:
        """What `data` completed: everything of this wake-up as one batch, and the end if it was reached."""
        pieces: list[Piece] = []
        for payload in self._splitter.feed(data):
            chunk = self._decoder.decode(payload)
            if chunk.error is not None:
                raise refusal(int(chunk.error.get("code", 500)), payload)
            if chunk.prompt_progress is not None:
                self._cached = chunk.prompt_progress.cache
                continue
            self._output = chunk.tokens_predicted
            if chunk.stop:
                return self._end(pieces, eos=chunk.stop_type == "eos")
            piece = self._tokens.piece(chunk)
            if self._doubtful is not None:
                pieces.append(self._doubtful)
            # Whether a control token ends the turn is told by the next chunk only.
            self._doubtful = piece if _looks_like_control(piece.text) else None
            if self._doubtful is None:
                pieces.append(piece)
            if piece.ids and piece.ids[-1] in self._stop_ids:
                return self._end(pieces, eos=True)
        passed, met = self._hold.feed(pieces)
        return _batch(passed), None if met is None else self._completion("stop_sequence", met)

    def _end(self, pieces: list[Piece], *, eos: bool) -> tuple[TokenBatch | None, Completion]:
        if self._doubtful is not None:
            pieces.append(self._doubtful)
        end_ids = pieces.pop().ids if eos and pieces else ()
        passed, met = self._hold.feed(pieces)
        if met is not None:
            return _batch(passed), self._completion("stop_sequence", met)
        end_id = end_ids[-1] if end_ids else None
        return _batch([*passed, *self._hold.flush()]), self._completion("stop" if eos else "length", None, end_id)

    def _completion(self, reason: FinishReason, met: str | None, end_id: int | None = None) -> Completion:
        return Completion(reason, self._prompt, self._output, self._cached, met, end_id)


def _looks_like_control(text: str) -> bool:
    return len(text) > 2 and text[0] in "<[" and text[-1] in ">]"


def _batch(pieces: Sequence[Piece]) -> TokenBatch | None:
    if not pieces:
        return None
    if len(pieces) == 1:
        return TokenBatch(pieces[0].text, pieces[0].ids, pieces[0].logprobs)
    return TokenBatch(
        "".join(piece.text for piece in pieces),
        tuple(token for piece in pieces for token in piece.ids),
        tuple(logprob for piece in pieces for logprob in piece.logprobs),
    )
