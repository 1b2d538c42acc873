"""What is known of one request while it is answered and after.

Promise: the one source of the log line, the record, the metrics and the console's view of a turn.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from turnwire.continuity import Verdict
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.prompts.prompt import Prompt
from turnwire.prompts.recall.witness import Witness
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import Finished, Note, Usage

__all__ = ["Passage", "TurnOutcome"]


class TurnOutcome(msgspec.Struct, kw_only=True):
    """What became of the turn. `text` is the raw model output and `output_ids` its tokens; `call_ids` are the minted
    ids of its tool calls in order; `witness` saw it as the client did."""

    usage: Usage
    finish: Finished | None = None
    notes: list[Note] = []
    text: str = ""
    output_ids: list[int] = []
    call_ids: list[str] = []
    witness: Witness | None = None
    failure: TurnFailure | None = None


class Passage(msgspec.Struct, kw_only=True):
    """A request on its way through the house. Times are monotonic seconds; `ended_by` says who ended it early (the
    client: `gone`, a stalled reader: `stalled`, a silent engine: `idle`, the operator: `shutdown`); `silence` is how
    long its engine said nothing, `dispatches` how long each call took from parsed to written."""

    api: str
    turn_id: str
    tenant: str
    started: float
    headers: dict[str, str]
    body: bytes
    inbound: Inbound[Any]
    runtime: ModelRuntime
    prompt: Prompt
    continuity: Verdict
    first_token: float | None = None
    outcome: TurnOutcome | None = None
    silence: float = 0.0
    dispatches: list[float] = []
    ended_by: str | None = None

    @property
    def finish(self) -> str:
        """How it ended, in one word: the model's own finish, who ended it early, or `failed`."""
        if self.outcome is not None and self.outcome.finish is not None:
            return self.outcome.finish.reason
        return self.ended_by or "failed"

    def call_parsed(self) -> None:
        """A call is whole. The time until the turn next waits is the time its bytes take to reach the socket."""
        asyncio.get_running_loop().call_soon(self._handed_over, time.perf_counter())

    def _handed_over(self, parsed: float) -> None:
        self.dispatches.append(time.perf_counter() - parsed)

    @property
    def notes(self) -> list[Note]:
        """Every note of the request, its prompt and its turn, in that order."""
        return [*self.inbound.notes, *self.prompt.notes, *(self.outcome.notes if self.outcome else ())]
