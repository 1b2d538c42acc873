"""What a response object repeats of its request, prepared once as bytes.

Promise: every field OpenAI's response object has is there, with the request's value or OpenAI's default, so strict
client types accept it. The bytes of instructions and tools, which may be long, are made once for all requests of a
conversation, and are copied only into what is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.protocols.fields.reader import Fields
from turnwire.protocols.fields.table import RESPONSES
from turnwire.protocols.framing import json_line
from turnwire.protocols.limits import Limits
from turnwire.protocols.responses.tools import Toolbox

__all__ = ["Echo", "EchoedFields", "ResponseJson", "echoed_fields", "echoed_tools", "no_fields"]

DEFAULTS: Mapping[str, Any] = {
    "background": False,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "prompt_cache_key": None,
    "prompt_cache_retention": None,
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""Fields of the response object that are copied from the request, and what is there when it says nothing."""


class Echo(msgspec.Struct, kw_only=True):
    """What the encoders of one response need from its request. `fields` are the members of the response object that
    never change, as pieces of JSON of which the first starts with a comma; `input_items` is what a stored response
    keeps of its input; `stateless` says that the client asked for encrypted reasoning, so that it can send everything
    back itself."""

    fields: tuple[bytes, ...] = ()
    toolbox: Toolbox = msgspec.field(default_factory=Toolbox)
    summaries: bool = True
    store: bool = True
    background: bool = False
    previous_response_id: str | None = None
    input_items: list[dict[str, Any]] = msgspec.field(default_factory=list)
    compaction: bool = False
    codex: bool = False
    stateless: bool = False


class EchoedFields(msgspec.Struct, frozen=True, gc=False):
    """The constant members of the response object for a request, but for its tools, which stand between them, and what
    it goes on from, which is another with each request of a conversation."""

    before: bytes
    after: bytes

    def around(self, tools: bytes, previous: str | None) -> tuple[bytes, ...]:
        """The members with the tools, as `echoed_tools` wrote them, and the id of the response before."""
        return b',"previous_response_id":' + json_line(previous), self.before, tools, self.after


class ResponseJson(msgspec.Struct, frozen=True, gc=False):
    """A response object as JSON in pieces: those between what comes `before` and `after` them are what it repeats of
    its request."""

    before: bytes
    repeated: tuple[bytes, ...]
    after: bytes

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """All of them, in order."""
        return self.before, *self.repeated, self.after

    @property
    def json(self) -> bytes:
        """The whole in one piece."""
        return b"".join(self.pieces)


def echoed_fields(request: Fields) -> EchoedFields:
    """What a response object repeats of this request."""
    fields: dict[str, Any] = {}
    for name, default in DEFAULTS.items():
        value = request.value(name)
        fields[name] = default if value is None else value
    if fields["service_tier"] == "auto":
        fields["service_tier"] = "default"
    fields["reasoning"] = {"effort": None, "summary": None, **(request.object("reasoning") or {})}
    text = request.object("text") or {}
    fields["text"] = {**text, "format": _format(text.get("format")), "verbosity": text.get("verbosity") or "medium"}
    last: dict[str, Any] = {}
    options = request.object("prompt_cache_options")
    if options is not None:
        last["prompt_cache_options"] = {"mode": "implicit", "ttl": "30m", **options}
    for name in ("image", "access_programs"):
        if request.has(name):
            last[name] = request.value(name)
    after = b"," + json_line(last)[1:-1] if last else b""
    return EchoedFields(b"," + json_line(fields)[1:-1] + b',"tools":', after)


def no_fields() -> tuple[bytes, ...]:
    """The constant members of a response object whose request was never read."""
    return echoed_fields(Fields(b"{}", RESPONSES, Limits())).around(b"[]", None)


def echoed_tools(tools: list[Any]) -> bytes:
    """The tools of a request as the response object states them."""
    return json_line([_tool(tool) for tool in tools])


def _format(form: Any) -> dict[str, Any]:
    if not isinstance(form, dict):
        return {"type": "text"}
    if form.get("type") == "json_schema":
        return {"name": "output", "description": None, "strict": False, **form}
    return form


def _tool(tool: Any) -> Any:
    """A tool as the response object states it: the optional fields of a function are spelled out."""
    if isinstance(tool, dict) and tool.get("type", "function") == "function":
        return {"type": "function", "description": None, "parameters": None, "strict": None, **tool}
    return tool
