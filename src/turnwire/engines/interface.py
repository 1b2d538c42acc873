"""The engine interface: prompt token ids in, batches of tokens pushed out.

Promise: every adapter behaves the same above this line. `submit` starts a generation and returns at once; the engine
then calls the receiver from the event loop, in order, and ends with exactly one `done` or one `failed`. `abort` ends
the engine's work, and no call follows it. No engine's own vocabulary leaks out of this package.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from turnwire.engines.kv_source import KVSource
from turnwire.turns import Conversation, Event, FinishReason, ImageBlock, Sampling

__all__ = [
    "Capabilities",
    "Completion",
    "Constraint",
    "Engine",
    "EngineError",
    "EngineInfo",
    "EventBatch",
    "GenerateRequest",
    "Generation",
    "Hints",
    "ImageWriting",
    "Receiver",
    "Route",
    "RoutedReceiver",
    "Step",
    "TokenBatch",
    "TokenLogprob",
    "Vectors",
    "Why",
    "worker_number",
]


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """Guided decoding, in the engine-neutral form: exactly one of the fields is set."""

    json_schema: dict[str, object] | None = None
    regex: str | None = None
    lark: str | None = None
    gbnf: str | None = None


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """What helps an engine schedule and cache; none of it changes the tokens. Higher `priority` is served earlier by an
    engine. In a line before engines a higher `rank`, which only the operator gives, goes before; among equals each
    `tenant` gets its share by `weight`. A tenant's own turns go by `tier`, which no engine gets to know, and within a
    tier each step of `priority` is worth a second of waiting. Whoever is not served by `deadline` (as `time.monotonic`
    counts) is no longer waited for. `session` names the conversation, `final` its last turn; `expected_output` is how
    many tokens the client expects; `urgency` (0 to 1) is what waiting weighs against reading a prompt again. `worker`
    is the number of the worker that the client wants, which is taken where it takes turns."""

    request_id: str
    session: str | None = None
    priority: int = 0
    cache_salt: str | None = None
    tenant: str = ""
    rank: int = 0
    weight: float = 1.0
    tier: int = 0
    deadline: float | None = None
    expected_output: int | None = None
    urgency: float = 0.7
    final: bool = False
    worker: int | None = None


def worker_number(name: str) -> int:
    """The number of a worker, for clients that know workers by numbers; the same name always gives the same one."""
    return zlib.crc32(name.encode())


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One generation. `prompt_ids` is the whole prompt; `conversation` is for engines that yield structured events and
    for the scripted one, which picks its line by it. `resumed` says how many of the last prompt ids are this very
    turn's output, begun on another worker. `images` are those of the conversation, in the order of their places in the
    prompt, where the engine is to see them."""

    prompt_ids: Sequence[int]
    sampling: Sampling
    hints: Hints
    conversation: Conversation
    constraint: Constraint | None = None
    stop_token_ids: tuple[int, ...] = ()
    resumed: int = 0
    images: tuple[ImageBlock, ...] = ()


class TokenLogprob(msgspec.Struct, frozen=True, gc=False):
    """One token's log probability and its best rivals."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


class TokenBatch(msgspec.Struct, frozen=True, gc=False):
    """All tokens that became available in one wake-up. `text` never ends inside a code point (it may be empty while one
    is incomplete); special tokens are spelled out in `text`. `ids` are the sampled tokens without the end token that
    stopped the model."""

    text: str
    ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


class EventBatch(msgspec.Struct, frozen=True, gc=False):
    """What a structured engine yields instead of text: vocabulary events, trusted and never parsed again."""

    events: tuple[Event, ...]


_MOST_TOKENS = (1 << 31) - 1
"""What counts are kept in, and whoever reads them, can take."""


class Completion(msgspec.Struct, frozen=True, gc=False):
    """The engine's own end of the generation, with its own counts. The end token that the model stopped at is counted
    in `output_tokens` but is in no batch. `reasoning_tokens` are reported by engines that separate thoughts
    themselves. A count that can be none is the nearest one that can."""

    reason: FinishReason
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    stop_sequence: str | None = None
    reasoning_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"):
            count = getattr(self, name)
            if not 0 <= count <= _MOST_TOKENS:
                msgspec.structs.force_setattr(self, name, min(max(count, 0), _MOST_TOKENS))


Step: TypeAlias = TokenBatch | EventBatch | Completion


class EngineError(Exception):
    """An engine's failure in neutral words. `kind` decides what the client is sent and whether another try makes sense;
    `message` is safe to show."""

    def __init__(
        self,
        kind: Literal[
            "unreachable", "disconnected", "overloaded", "context_overflow", "invalid_request", "timeout", "internal"
        ],
        message: str,
        *,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after = retry_after


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine can do. `yields` is `tokens` (ids and text), `text` (text only) or `events` (already parsed)."""

    yields: Literal["tokens", "text", "events"]
    guided: frozenset[Literal["json_schema", "regex", "lark", "gbnf"]] = frozenset()
    priority: bool = False
    cache_salt: bool = False
    cached_tokens: bool = False
    images: bool = False


class ImageWriting(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine that takes prompts takes the images of one. `mark` is the text that stands for an image (None: what
    the model's own template writes); `resumes` says whether a turn with images can go on after it was stopped."""

    mark: str | None = None
    resumes: bool = True


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What was discovered at start. `window` is the context length in tokens; `embedding_models` are the ids of a model
    that answers `embed` beside the served one; `kv_events` is where it publishes what its cache holds, rank by rank;
    `sees` says whether the model sees images, where its server tells that, and `images` how prompts carry them;
    `warnings` say what is missing and which flag sets it."""

    name: str
    version: str | None = None
    model: str | None = None
    window: int | None = None
    embedding_models: tuple[str, ...] = ()
    kv_events: tuple[KVSource, ...] = ()
    sees: bool | None = None
    images: ImageWriting | None = None
    warnings: tuple[str, ...] = ()


class Vectors(list[list[float]]):
    """The vectors of some inputs, in their order. `tokens` is how many the model that read them counted; None where it
    does not say."""

    def __init__(self, vectors: Iterable[list[float]] = (), tokens: int | None = None) -> None:
        super().__init__(vectors)
        self.tokens = tokens


class Receiver(Protocol):
    """What a generation is pushed into. One call brings all that one wake-up brought. No call comes before `submit`
    has returned, and none after `done`, `failed` or the generation's `abort`."""

    def tokens(self, batch: TokenBatch) -> None:
        """More output of an engine that yields tokens or text."""
        ...

    def events(self, batch: EventBatch) -> None:
        """More output of an engine that yields events, or its notes."""
        ...

    def done(self, completion: Completion) -> None:
        """The engine's own end of the generation."""
        ...

    def failed(self, error: EngineError) -> None:
        """The generation ended any other way."""
        ...


Why: TypeAlias = Literal["only", "session", "prefix", "load", "named"]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pool sent a turn, and why: to the `only` worker there is, to its `session`'s last one, to one that holds
    more of its `prefix` than others, to the one with the least `load`, or to the one that the client `named`. `label`
    names the worker to clients. Of the `prompt`'s tokens it is believed to hold `cached` and to be reading `pending`
    for other turns; `waiting` is the work it had before this turn, in tokens. `queued` is how long the turn waited in
    line, in seconds."""

    worker: str
    label: str
    why: Why
    prompt: int
    cached: int
    pending: int
    waiting: int
    queued: float

    @property
    def header(self) -> str:
        """For `x-turnwire-route`: why, then the numbers, in ASCII."""
        told = f"{self.why}; prompt={self.prompt}"
        if self.why != "only":
            told += f"; cached={self.cached}; pending={self.pending}; waiting={self.waiting}"
        return f"{told}; queued_ms={self.queued * 1e3:.0f}"


class RoutedReceiver(Receiver, Protocol):
    """A receiver that wants to know where its turn runs."""

    def routed(self, route: Route) -> None:
        """A worker took the turn; again, if it moves."""
        ...


class Generation(Protocol):
    """A running generation, as whoever submitted it holds it. Every method may be called at any time, also after the
    end, when it does nothing."""

    def abort(self) -> None:
        """Stop the engine's work; the receiver gets nothing more."""
        ...

    def pause(self) -> None:
        """Stop reading from the engine: whoever takes the output is slow. A few calls may still come."""
        ...

    def resume(self) -> None:
        """Read on."""
        ...


@runtime_checkable
class Engine(Protocol):
    """An engine adapter."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def start(self) -> EngineInfo:
        """Connect or load, and say what was found. Called once before the first `submit`."""
        ...

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        """Start a generation; see the module's promise. A request that cannot be served fails by `failed`, too."""
        ...

    async def health(self) -> bool:
        """Whether the engine would take work now."""
        ...

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        """Embeddings, where capabilities say so; else EngineError(invalid_request). An engine that says how many
        tokens they were gives `Vectors`."""
        ...

    async def close(self) -> None:
        """Release everything; running generations end with EngineError(disconnected)."""
        ...
