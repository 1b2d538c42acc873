"""Solar Open: messages typed by a marker after the role, calls with their id and name in markers.

Promise: a call keeps the id that the model gave it.
"""

from __future__ import annotations

from typing import Final

from turnwire.parsers.codecs.channels import Channels, Header, Hints, Route
from turnwire.parsers.codecs.named import Named
from turnwire.parsers.dialect import Dialect, Signature
from turnwire.parsers.writing import CallForm

__all__ = ["DIALECTS"]

ROUTES: Final = {
    "<|think|>": Route("reasoning"),
    "<|content|>": Route("text"),
    "<|tool_calls|>": Route("call"),
    "<|tool_call:begin|>": Route("call", broken=True),
}
CALLS = Named(
    header=r"\s*(?P<id>[^\s<]*)\s*<\|tool_call:name\|>\s*(?P<name>[^\s<{]+)\s*(?:<\|tool_call:args\|>)?(?P<rest>\s*)",
    sections=(("<|tool_calls|>", "<|calls|>"), ("<|tool_calls|>", "<|end|>")),
    call_open=("<|tool_call:begin|>",),
    call_close=("<|tool_call:end|>",),
    separators=("<|tool_call:name|>", "<|tool_call:args|>"),
)


def route(header: Header) -> Route | None:
    """The marker decides."""
    return ROUTES.get(header.body, Route("text"))


DIALECTS = (
    Dialect(
        name="solar_open",
        router=Channels(
            opens=("<|begin|>",),
            bodies=tuple(ROUTES),
            closes=("<|end|>", "<|calls|>", "<|flush|>"),
            rule=route,
            hints=Hints(("assistant",), r"(?!assistant\s*\Z)", r"\s{0,4}(?:assistant)?"),
            calls=CALLS,
        ),
        aliases=("solar", "solar_open_100b"),
        writes=CallForm(
            section=("<|tool_calls|>", "<|calls|>"),
            head="<|tool_call:begin|>{index}<|tool_call:name|>{name}<|tool_call:args|>",
            tail="<|tool_call:end|>",
            thought=("<|think|>", "<|end|>", "<|begin|>assistant"),
            answer="<|content|>",
        ),
        known_by=(Signature(("<|tool_call:begin|>",)),),
        ids=("solar-open",),
    ),
)
