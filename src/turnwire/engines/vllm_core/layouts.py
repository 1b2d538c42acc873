"""The engine core's messages as values, and which vLLM versions lay them out like this.

Promise: `layout_of` gives a layout only for a version whose messages were checked against a running engine core, and
refuses every other one with the versions that are known. Unknown trailing fields of an answer are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.engines.interface import EngineError

__all__ = [
    "ABORT",
    "ADD",
    "DEAD",
    "UTILITY",
    "Add",
    "Finish",
    "Hello",
    "Layout",
    "Output",
    "Outputs",
    "Ready",
    "layout_of",
]

ADD, ABORT, UTILITY = b"\x00", b"\x01", b"\x03"
"""The type byte of a request."""

DEAD = b"ENGINE_CORE_DEAD"
"""The one frame that a core sends when its own loop has failed."""


class Finish:
    """Why an output is a request's last."""

    STOP, LENGTH, ABORT, ERROR, REPETITION = range(5)


class Hello(msgspec.Struct):
    """What an engine says on the handshake socket: HELLO before it loads the model, READY after it."""

    status: str = ""
    parallel_config_hash: str | None = None


class Ready(msgspec.Struct, omit_defaults=True):
    """What a core reports of itself once the model is loaded."""

    vllm_version: str
    max_model_len: int
    block_size: int = 0
    data_parallel_size: int = 1
    data_parallel_rank: int = 0
    max_num_seqs: int = 0
    dp_stats_address: str | None = None
    instance_id: str | None = None
    kv_events_config: dict[str, Any] | None = None


class Add(msgspec.Struct, array_like=True):
    """A request. Positions that nothing here sets are None; those after the last are left out."""

    request_id: str
    prompt_token_ids: msgspec.Raw
    mm_features: None
    sampling_params: dict[str, object]
    pooling_params: None
    arrival_time: float
    lora_request: None
    cache_salt: str | None
    data_parallel_rank: None
    prompt_embeds: None = None
    prompt_is_token_ids: None = None
    client_index: int = 0
    current_wave: int = 0
    priority: int = 0


class PrefillStats(msgspec.Struct, gc=False):
    """How much of a prompt was read from the cache."""

    num_cached_tokens: int = 0


class Output(msgspec.Struct, array_like=True, gc=False):
    """What one step brought for one request. `new_logprobs` holds arrays whose bytes may lie in further frames."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: Any = None
    prompt_logprobs: object = None
    pooling_output: object = None
    finish_reason: int | None = None
    stop_reason: int | str | None = None
    events: object = None
    kv_transfer_params: object = None
    ec_transfer_params: object = None
    trace_headers: object = None
    prefill_stats: PrefillStats | None = None


class Outputs(msgspec.Struct, array_like=True, gc=False):
    """One step of one engine. `utility_output` is the answer to a call: its number, an error, and the result."""

    engine_index: int
    outputs: list[Output] = []
    scheduler_stats: msgspec.Raw = msgspec.Raw()
    timestamp: float = 0.0
    utility_output: tuple[int, str | None, Any] | None = None


class Layout(msgspec.Struct, frozen=True):
    """How one line of versions lays its messages out."""

    version: tuple[int, int]
    outputs: msgspec.msgpack.Decoder[Outputs]


_LAYOUTS: Mapping[tuple[int, int], Layout] = {
    layout.version: layout for layout in (Layout((0, 32), msgspec.msgpack.Decoder(Outputs)),)
}


def layout_of(version: str) -> Layout:
    """The layout of a vLLM version, or EngineError(invalid_request)."""
    told = re.match(r"(\d+)\.(\d+)", version)
    layout = _LAYOUTS.get((int(told[1]), int(told[2]))) if told else None
    if layout is None:
        known = ", ".join(f"{major}.{minor}" for major, minor in _LAYOUTS)
        raise EngineError(
            "invalid_request",
            f"the engine core is of vLLM {version}, whose wire is not known here (known: {known}); "
            "use the engine vllm:http://HOST:PORT, which serves every version, or a Turnwire that knows this one",
        )
    return layout
