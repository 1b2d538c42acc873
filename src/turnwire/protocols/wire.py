"""What every API codec offers the gateway: decode a request, encode a turn, phrase an error.

Promise: sans-IO. A codec is a folder here (`anthropic/`, `responses/`, `chat/`); the gateway knows only these
types, so all APIs share everything between decode and encode. Stream and non-stream answers are two encoders fed with
the same events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from turnwire.turns import Conversation, Event, HostedUse, Note, Usage

__all__ = ["Delta", "Encoder", "ErrorKind", "ErrorReply", "Inbound", "TurnFacts", "TurnFailure"]

E = TypeVar("E")

ErrorKind = Literal[
    "invalid_request",  # the request is wrong and the message says what to change
    "authentication",  # no key, or an unknown one
    "permission",  # a known key that may not do this
    "not_found",  # unknown model, response or thread
    "too_large",  # the body or a part of it is over a limit
    "rate_limited",  # this key asks too much
    "overloaded",  # we or the engine are at capacity
    "context_overflow",  # prompt does not fit; prompt_tokens and window are set
    "engine_failed",  # the engine died or broke its contract
    "timeout",  # silent beyond its deadline
    "internal",  # a defect of ours
]


class TurnFailure(Exception):
    """Why a turn has no (complete) answer, in words that no API owns. Codecs phrase it."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        prompt_tokens: int | None = None,
        window: int | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after
        self.prompt_tokens = prompt_tokens
        self.window = window
        self.details = details


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """A failure phrased for one API, to be sent before any byte of the answer."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    media_type: str = "application/json"


class Inbound(msgspec.Struct, Generic[E], kw_only=True):
    """A decoded request. `echo` is of the codec's own type: whatever its encoder must repeat in the answer. `dispatch`
    is the request's opt-in to `tool_call_dispatch` events (None: it said nothing). `previous_turn` is the id of the
    turn that the client wants its prompt compared with, to learn why the prefix was not reused. `prompt` goes to the
    engine as it is, as text or token ids, with no template around it. The request wants `choices` answers; with
    `background` it does not wait for them. `hosted` are the tools of the conversation that the gateway runs itself;
    `report` is what the client wants to know of its turn, and `annotations` what the head of its stream shall say, by
    Dynamo's names."""

    conversation: Conversation
    stream: bool
    echo: E
    notes: tuple[Note, ...] = ()
    dispatch: bool | None = None
    previous_turn: str | None = None
    prompt: str | tuple[int, ...] | None = None
    choices: int = 1
    background: bool = False
    hosted: Mapping[str, HostedUse] = msgspec.field(default_factory=dict)
    report: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()

    def choice(self, number: int) -> Inbound[E]:
        """The request of one of its answers. A seed is for the first; the others get their own, or all would say the
        same."""
        seed = self.conversation.sampling.seed
        if not number or seed is None:
            return self
        sampling = msgspec.structs.replace(self.conversation.sampling, seed=seed + number)
        conversation = msgspec.structs.replace(self.conversation, sampling=sampling)
        return msgspec.structs.replace(self, conversation=conversation)


class TurnFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway fixes before a turn starts: a unique id (alphanumeric, no prefix), the model id to echo, and the
    time (unix seconds), since codecs have no clock. `diagnostics` is what the API says of prefix reuse in an object of
    its own, for an answer whose request asked for it; `annotations` are what the head of its stream says."""

    turn_id: str
    model: str
    created: int
    dispatch: bool = False
    diagnostics: Mapping[str, object] | None = None
    annotations: Mapping[str, object] = msgspec.field(default_factory=dict)


class Delta(NamedTuple):
    """How more of an open block is written: `head`, the text as a JSON string, `tail`. Where deltas are numbered,
    `tail` takes the number, which is `number` for the next one and one higher for each after it. `ran`, where there is
    one, is told what was written so, and in how many deltas."""

    head: bytes
    tail: bytes
    number: int = -1
    ran: Callable[[str, int], None] | None = None


class Encoder(Protocol):
    """Turns the events of one turn into bytes, in order. The gateway calls `start` once, `feed` with every batch of
    events (the last batch holds Usage, then Finished), and writes what comes back at once. A non-streaming encoder
    returns b"" until the batch with Finished. Tool-call ids are already minted in the events. `streams` is whether
    anything is sent before the end; `media_type` is what an HTTP answer declares; `carried` is whether the seal of the
    turn's end went out with the answer."""

    media_type: str
    streams: bool
    carried: bool

    def start(self, usage: Usage) -> bytes:
        """The opening bytes; `usage.prompt` is exact, `usage.cached` as far as known."""
        ...

    def feed(self, events: Sequence[Event]) -> bytes: ...

    def running(self, index: int) -> Delta | None:
        """How more of this open block may be written without asking for each piece, which must not be empty; None where
        all of it has to come through `feed`. What was written so is told to `ran` before anything else is asked."""
        ...

    def keepalive(self) -> bytes:
        """Real sign of life while the engine is silent; b"" where the API has none."""
        ...

    def fail(self, failure: TurnFailure) -> bytes:
        """What to write when the turn dies after `start`; the connection is closed after it."""
        ...
