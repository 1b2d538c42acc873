"""Muse Glimmer (ATEM): messages addressed to the model itself, to the user, or to a tool, with tagged arguments.

Promise: a message to the model itself is a thought, one to the user is text, one to a tool is a call.
"""

from __future__ import annotations

import re
from typing import Final

from turnwire.parsers.codecs.channels import Channels, Header, Hints, Route
from turnwire.parsers.codecs.tagged import Headers, Tagged, Values
from turnwire.parsers.dialect import Dialect, Signature
from turnwire.parsers.writing import ArgumentForm, CallForm

__all__ = ["DIALECTS"]

PEOPLE: Final = {"self": Route("reasoning"), "user": Route("text")}

_HEADER = re.compile(r"\s*(?:assistant)?\s*(?:to=(?P<name>[^\s<]+))?\s*")


def route(header: Header) -> Route | None:
    """The recipient decides; a message without one is for the user."""
    found = _HEADER.fullmatch(header.text)
    if found is None:
        return Route("text", "", True)
    name = found["name"]
    if name is None:
        return Route("text", "", True)
    return PEOPLE.get(name) or Route("call", name)


ATEM = Tagged(
    sections=tuple(("<atem:function_calls>", closer) for closer in ("</atem:function_calls>", "<|eom|>", "<|eot|>")),
    call_open=("<atem:invoke",),
    call_close=("</atem:invoke>",),
    param_open=("<atem:parameter",),
    param_close=("</atem:parameter>",),
    headers=Headers(name_attribute="name", key_attribute="name", doubled=True),
    values=Values(guess=True),
)

DIALECTS = (
    Dialect(
        name="muse_glimmer",
        router=Channels(
            opens=("<|start|>",),
            bodies=("<|message|>",),
            closes=("<|eom|>", "<|eot|>"),
            rule=route,
            hints=Hints(
                words=("to=", "assistant"),
                hopeless=r"(?!(?:assistant)?\s*(?:t|to|to=\S*)?\Z)",
                lead_in=r"\s{0,4}(?:assistant)?\s{0,4}(?:to=[^\s<]{1,128})?",
            ),
            breaks=("reasoning",),
            calls=ATEM,
            raw=False,
        ),
        aliases=("muse",),
        writes=CallForm(
            head=' to={name}<|message|><atem:function_calls>\n<atem:invoke name="{name}">\n',
            arguments=ArgumentForm('<atem:parameter name="{key}">', "</atem:parameter>\n"),
            tail="</atem:invoke>\n</atem:function_calls>",
            single=True,
            thought=(" to=self<|message|>", "<|eom|>", "<|start|>assistant"),
            answer=" to=user<|message|>",
        ),
        known_by=(Signature(("<atem:function_calls>",)), Signature(("atem:", "to=self"))),
        ids=("muse-glimmer", "muse"),
        reasoning_aliases=("muse",),
    ),
)
