"""What is known of one turn while it runs and after.

Promise: the one source of the log line, the journal, the metrics and the traces of a turn; made in one place, by
admission.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from turnwire.continuity import Verdict
from turnwire.engines.interface import Route
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.parsers import Dialect
from turnwire.prompts.prompt import Prompt
from turnwire.prompts.recall.witness import Witness
from turnwire.protocols.reply import Reply
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import Finished, Message, Note, Usage

__all__ = ["BlockTimes", "TurnOutcome", "TurnRecord"]

E = TypeVar("E")


class TurnOutcome(msgspec.Struct, kw_only=True):
    """What became of the turn. `text` is the raw model output and `output_ids` its tokens; `call_ids` are the minted
    ids of its tool calls in order; `witness` saw it as the client did."""

    usage: Usage
    finish: Finished | None = None
    notes: list[Note] = []
    text: str = ""
    output_ids: Sequence[int] = ()
    call_ids: list[str] = []
    witness: Witness | None = None
    failure: TurnFailure | None = None


class BlockTimes(msgspec.Struct):
    """One block of the answer: when it opened and closed, and the tool it calls."""

    kind: str
    name: str
    opened: float
    closed: float | None = None


class TurnRecord(msgspec.Struct, Generic[E], kw_only=True):
    """A turn from its admission on. `session` names the thread of prompts that it belongs to (see `session_key`). Times
    are monotonic seconds: `started` is when its request had been read. `exact`
    turns are sealed and remembered; a raw completion is not, and its `dialect` sees only text. `reply` collects the
    answer as a message where somebody needs it. `ended_by` says who ended it early (the client: `gone`, a stalled
    reader: `stalled`, a silent engine: `idle`, the operator: `shutdown` or
    `cancelled`); `silence` is how long its engine said
    nothing, `dispatches` how long each call took from parsed to written; `route` is where it ran, `blocks` when
    each part of the answer came, `beats` when a sign of life was sent; `created` is the time that the answer states, in
    unix seconds. `overflow` is the refusal of a prompt that cannot fit and was never rendered: APIs say that in the
    words of a turn, so it is raised by the turn. `body` is the request's, where the gateway keeps it. `rounds` are the
    earlier rounds of the same answer, where the gateway ran tools between them."""

    api: str
    turn_id: str
    tenant: str
    session: str
    started: float
    headers: dict[str, str]
    body: bytes
    inbound: Inbound[E]
    runtime: ModelRuntime
    dialect: Dialect
    exact: bool
    prompt: Prompt
    continuity: Verdict
    key: str = "anonymous"
    first_token: float | None = None
    outcome: TurnOutcome | None = None
    silence: float = 0.0
    dispatches: list[float] = []
    ended_by: str | None = None
    reply: Reply | None = None
    route: Route | None = None
    blocks: list[BlockTimes] = []
    beats: list[float] = []
    created: int = msgspec.field(default_factory=lambda: int(time.time()))
    overflow: TurnFailure | None = None
    rounds: tuple[Message, ...] = ()

    @property
    def finish(self) -> str:
        """How it ended, in one word: the model's own finish, who ended it early, or `failed`."""
        if self.outcome is not None and self.outcome.finish is not None:
            return self.outcome.finish.reason
        return self.ended_by or "failed"

    def called(self) -> None:
        """Note the time at which the first token came, once."""
        if self.first_token is None:
            self.first_token = time.monotonic()

    @property
    def notes(self) -> list[Note]:
        """Every note of the request, its prompt and its turn, in that order."""
        return [*self.inbound.notes, *self.prompt.notes, *(self.outcome.notes if self.outcome else ())]
