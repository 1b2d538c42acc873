"""What the engine is asked for: a turn's record as a request with its hints, and what no engine has a word for.

Promise: a request never asks for more tokens than the window has left; a prompt that leaves none is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from turnwire.engines.interface import Constraint, GenerateRequest, Hints
from turnwire.gateway.turns.record import TurnRecord
from turnwire.protocols.context import key_rank
from turnwire.protocols.wire import TurnFailure
from turnwire.turns import Note, Sampling

__all__ = ["engine_request", "hints_of", "stops_here", "unsaid"]


def engine_request(
    record: TurnRecord[Any], constraint: Constraint | None, prefill: Sequence[int], resumed: int
) -> GenerateRequest:
    """The request of a turn. `prefill` follows the prompt and counts as the model's own output; `resumed` is how many
    tokens of output there are already."""
    runtime, prompt, conversation = record.runtime, record.prompt, record.inbound.conversation
    return GenerateRequest(
        prompt_ids=[*prompt.ids, *prefill] if prefill else prompt.ids,
        constraint=constraint,
        sampling=_bounded(record, runtime.defaults_under(conversation.sampling), len(prefill), resumed),
        resumed=resumed,
        hints=hints_of(record),
        conversation=conversation,
        stop_token_ids=runtime.stop_token_ids,
        images=runtime.shown(conversation),
    )


def hints_of(record: TurnRecord[Any]) -> Hints:
    """A turn's place among others, for the pool and the engine."""
    conversation = record.inbound.conversation
    context = conversation.context
    return Hints(
        request_id=record.turn_id,
        session=record.session if record.exact else context.session,
        priority=context.priority,
        cache_salt=record.runtime.cache_salt(record.tenant, context.cache_salt),
        tenant=record.tenant,
        rank=key_rank(context.priority),
        weight=context.weight,
        tier=context.tier,
        deadline=None if context.patience is None else record.started + context.patience,
        expected_output=context.expected_output,
        urgency=context.urgency,
        final=context.final,
        worker=context.worker,
    )


def unsaid(record: TurnRecord[Any]) -> tuple[Note, ...]:
    """What a request says about the engine's cache that its engine cannot be told."""
    if not record.inbound.conversation.context.final:
        return ()
    words = "The engine has no word for the end of a session; its cache keeps the session until others need the room."
    return (Note("routing.session_end_unsaid", words),)


def stops_here(record: TurnRecord[Any]) -> bool:
    """Whether stop strings are looked for in the parsed answer. An engine would also find them in thoughts and markup;
    it keeps them for raw completions, where it reads conversations, and where its scores must end with the text."""
    sampling = record.inbound.conversation.sampling
    return bool(sampling.stop) and record.exact and record.runtime.writes_prompts and sampling.logprobs is None


def _bounded(record: TurnRecord[Any], sampling: Sampling, prefilled: int, resumed: int) -> Sampling:
    """`max_tokens` within what the window has left. A server that writes and counts the prompt itself sees to that by
    itself."""
    runtime, size = record.runtime, len(record.prompt.ids)
    if not runtime.writes_prompts:
        return sampling
    room = runtime.window - size - prefilled
    if room <= 0:
        raise TurnFailure(
            "context_overflow",
            f"The prompt has {size} tokens and the model's window is {runtime.window}.",
            prompt_tokens=size,
            window=runtime.window,
        )
    wanted = sampling.max_tokens
    if wanted is not None:
        room = min(room, max(wanted - resumed, 1))
    stop = () if stops_here(record) else sampling.stop
    return msgspec.structs.replace(sampling, max_tokens=room, stop=stop)
