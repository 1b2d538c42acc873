"""A generation as the engine core is asked for it, checked before it is sent.

Promise: the core checks next to nothing, and what it cannot digest ends it for everybody; so a request that leaves here
has a prompt that fits, ids within the vocabulary and sampling values within the core's bounds, or it is refused with an
EngineError that names the value.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import msgspec

from turnwire.engines.http.wishes import made
from turnwire.engines.interface import Constraint, EngineError, GenerateRequest
from turnwire.engines.vllm_core.layouts import Add
from turnwire.engines.vllm_core.zmtp import Piece
from turnwire.engines.vocabulary import check_ids
from turnwire.token_ids import ids_msgpack
from turnwire.turns import Sampling

__all__ = ["add_of", "probe_of"]

_encode = msgspec.msgpack.Encoder().encode
_MOST_LOGPROBS = 20
_BIAS = 100.0
_LEFT_OUT = msgspec.Raw(b"")
"""In the place of a prompt that is put there later."""
_SCHEMA_DEPTH = 64

# Each wish with what the core takes: the lowest and highest value, and whether the lowest itself is allowed.
_BOUNDS: Mapping[str, tuple[float, float, bool]] = {
    "temperature": (0.0, 2.0, True),
    "top_p": (0.0, 1.0, False),
    "top_k": (-1, 2**31 - 1, True),
    "min_p": (0.0, 1.0, True),
    "presence_penalty": (-2.0, 2.0, True),
    "frequency_penalty": (-2.0, 2.0, True),
    "repetition_penalty": (0.0, math.inf, False),
    "seed": (-(2**63), 2**63 - 1, True),
    "logprobs": (0, _MOST_LOGPROBS, True),
}


def add_of(request: GenerateRequest, request_id: str, *, window: int, vocabulary: int) -> Sequence[Piece]:
    """The request to send, in pieces, or EngineError."""
    ids, sampling, hints = request.prompt_ids, request.sampling, request.hints
    size = len(ids)
    if not 0 < size < window:
        raise _misfit(size, window)
    check_ids(ids, vocabulary)
    room = window - size
    params = _wishes(sampling, vocabulary)
    params["max_tokens"] = room if sampling.max_tokens is None else min(_at_least_one(sampling.max_tokens), room)
    if stops := [token for token in request.stop_token_ids if 0 <= token < vocabulary]:
        # A grammar that is complete allows only the first; the others end plain text as well.
        params |= {"_eos_token_id": stops[0], "stop_token_ids": stops}
    if request.constraint is not None:
        params["structured_outputs"] = _structure(request.constraint)
    # The core serves lower numbers earlier.
    return _add(request_id, ids_msgpack(ids), params, hints.cache_salt or None, -hints.priority)


def probe_of(request_id: str) -> Sequence[Piece]:
    """A request for one token and the log probabilities of the whole vocabulary. Its salt keeps it out of the cache
    that others use."""
    return _add(
        request_id, ids_msgpack([0]), {"max_tokens": 1, "temperature": 0.0, "logprobs": -1}, "turnwire probe", 0
    )


def _add(
    request_id: str, prompt: msgspec.Raw, params: dict[str, object], salt: str | None, priority: int
) -> Sequence[Piece]:
    told = _encode(
        Add(
            request_id=request_id,
            prompt_token_ids=_LEFT_OUT,
            mm_features=None,
            sampling_params=params,
            pooling_params=None,
            arrival_time=time.time(),
            lora_request=None,
            cache_salt=salt,
            data_parallel_rank=None,
            priority=priority,
        )
    )
    # The prompt, which may be long, is not copied: its place is behind the list's head and the first position.
    place = 1 + len(_encode(request_id))
    return told[:place], memoryview(prompt), told[place:]


def _misfit(size: int, window: int) -> EngineError:
    if not size:
        return EngineError("invalid_request", "the prompt is empty; it needs at least one token")
    return EngineError(
        "context_overflow", f"prompt is too long: {size} tokens > {window - 1} that leave room for an answer"
    )


def _at_least_one(wanted: int) -> int:
    if wanted < 1:
        raise EngineError("invalid_request", f"max_tokens is {wanted}; it must be at least 1")
    return wanted


def _wishes(sampling: Sampling, vocabulary: int) -> dict[str, object]:
    told = msgspec.structs.asdict(sampling)
    wishes: dict[str, object] = {}
    for name, (low, high, inclusive) in _BOUNDS.items():
        value = told[name]
        if value is None:
            continue
        if not (low <= value <= high) or (value == low and not inclusive) or value == math.inf:
            above = "at least" if inclusive else "more than"
            bound = f"{above} {low:g}" + (f" and at most {high:g}" if high < math.inf else "")
            raise EngineError("invalid_request", f"{name} is {value!r}; it must be {bound}")
        wishes[name] = value
    if sampling.logit_bias:
        wishes["logit_bias"] = _bias(sampling.logit_bias, vocabulary)
    return wishes


def _bias(told: Mapping[str, float], vocabulary: int) -> dict[int, float]:
    bias = {}
    for name, value in told.items():
        token = int(name) if name.isascii() and name.isdigit() else -1
        if not 0 <= token < vocabulary:
            raise EngineError(
                "invalid_request", f"logit_bias names the token {name!r}; token ids are 0 to {vocabulary - 1}"
            )
        if math.isnan(value):
            raise EngineError("invalid_request", f"logit_bias of the token {name!r} is not a number")
        bias[token] = min(max(value, -_BIAS), _BIAS)
    return bias


def _structure(constraint: Constraint) -> dict[str, object]:
    schema = constraint.json_schema
    _shallow("the JSON schema", schema, _SCHEMA_DEPTH)
    kinds = {
        "json": msgspec.json.encode(schema).decode() if schema is not None else None,
        "regex": constraint.regex,
        "grammar": constraint.lark or constraint.gbnf,
    }
    # A core has one backend, that of its first constraint; this one compiles all kinds.
    return made(kinds) | {"_backend": "xgrammar"}


def _shallow(what: str, value: object, limit: int) -> None:
    level = [value]
    for _ in range(limit + 1):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    raise EngineError("invalid_request", f"{what} is nested more than {limit} levels deep")
