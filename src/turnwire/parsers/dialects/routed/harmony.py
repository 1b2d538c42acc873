"""gpt-oss (harmony): channels for thoughts, preambles and answers, and a recipient in the header for calls.

Promise: a recipient that is a tool makes a call on any channel; otherwise the channel decides.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from turnwire.parsers.codecs.channels import BareChannels, Channels, Header, Hints, Route, Stages
from turnwire.parsers.dialect import Dialect, Encoding, Signature
from turnwire.parsers.writing import CallForm

__all__ = ["DIALECTS"]

# Where a message without a recipient goes.
CHANNELS: Final[dict[str, Literal["text", "reasoning"]]] = {
    "analysis": "reasoning",
    "commentary": "text",
    "final": "text",
}
# Recipients that are not tools.
PEOPLE: Final = frozenset({"assistant", "user", "all", "system", "developer"})
# Words of the header that models glue to a recipient.
GLUED: Final = ("json", "code", "commentary", "analysis", "final")

_CHANNEL = re.compile(r"(?:<\|channel\|>|^assistant)[^A-Za-z<]*(analysis|commentary|final)")
_NOISE = re.compile(r"<\|channel\|>\s*[^\sA-Za-z<]")
_RECIPIENT = re.compile(r"to=([^\s<]+)")
_CONSTRAINT = re.compile(r"<\|constrain\|>\s*([A-Za-z]+)")
_ROLE = re.compile(r"\s*([^\s<]*)")


def route(header: Header) -> Route | None:
    """A recipient that is a tool makes a call on any channel; otherwise the last channel named decides."""
    text = header.text
    channels = _CHANNEL.findall(text)
    channel = channels[-1] if channels else ""
    role = _ROLE.match(text)
    speaker = "" if role is None or role[1].startswith("to=") else role[1]
    recipients = [name for name in _RECIPIENT.findall(text) if name not in PEOPLE]
    broken = (
        len(channels) != 1 or _NOISE.search(text) is not None or speaker not in ("", "assistant") or len(recipients) > 1
    )
    if recipients:
        name, clean = _tool(recipients[-1], header)
        return Route("call", name, broken or not clean) if name else Route("drop")
    if not _RECIPIENT.search(text):
        name, _ = _tool(speaker, header)
        if name in header.tools and name != "assistant":
            return Route("call", name, True)
        constraint = _CONSTRAINT.search(text)
        if channel == "commentary" and constraint is not None and constraint[1] == "json":
            return Route("drop")
    if CHANNELS.get(channel) == "reasoning":
        return Route("reasoning", "", broken)
    return Route("text", "", broken)


def _tool(recipient: str, header: Header) -> tuple[str, bool]:
    """The tool a recipient means, and whether it was spelt as it should be."""
    name = recipient
    while name.startswith("functions."):
        name = name.removeprefix("functions.")
    if name == "functions":
        return "", False
    if name in header.tools:
        return name, True
    for end in GLUED:
        if name.endswith(end) and name.removesuffix(end).rstrip(".:") in header.tools:
            return name.removesuffix(end).rstrip(".:"), False
    trimmed = name.strip(".,:;?!\"'`()")
    return trimmed, trimmed == name


HARMONY = Channels(
    opens=("<|start|>",),
    inner=("<|channel|>", "<|constrain|>"),
    bodies=("<|message|>",),
    closes=("<|end|>", "<|call|>", "<|return|>"),
    call_closes=("<|call|>",),
    rule=route,
    hints=Hints(
        words=("to=", "assistant"),
        hopeless=r"(?!(?:assistant)?\s*(?:t|to|to=\S*)?\s*(?:j|js|jso|json|c|co|cod|code)?\s*\Z)",
        lead_in=r"\s{0,4}(?:assistant)?\s{0,4}(?:to=[^\s<]{1,128})?\s{0,4}(?:<\|channel\|>[^A-Za-z<]{0,8}"
        r"(?:analysis|commentary|final)(?:\s{1,4}to=[^\s<]{1,128})?)?(?:\s{0,4}<\|constrain\|>\s{0,4}json)?",
    ),
    bare=BareChannels(tuple(CHANNELS.items()), "assistant"),
    stages=Stages(joined=True),
)

DIALECTS = (
    Dialect(
        name="harmony",
        router=HARMONY,
        aliases=("gpt_oss", "openai", "openai_gptoss", "gptoss"),
        reasoning_aliases=("gpt_oss", "openai_gptoss"),
        writes=CallForm(
            head="<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>",
            tail="",
            single=True,
            thought=("<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant"),
            answer="<|channel|>final<|message|>",
        ),
        known_by=(Signature(("<|channel|>", "<|message|>")),),
        ids=("gpt-oss",),
        encoding=Encoding.HARMONY,
    ),
)
