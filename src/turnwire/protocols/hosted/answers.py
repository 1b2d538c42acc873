"""The answers of hosted tools as the model reads them, and as clients carry them back.

Promise: what the model reads of an answer is a pure function of what the client carries, so a conversation that comes
back gives the very same prompt. A carrier that was not made here is refused, never guessed at.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from turnwire.turns import (
    CodeRun,
    Finding,
    HostedAnswer,
    HostedCalled,
    HostedUse,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from turnwire.unreadable import UNREADABLE

__all__ = [
    "ERRORS",
    "CarriedCall",
    "carried_text",
    "carrier",
    "error_text",
    "read_carrier",
    "result_block",
    "run_text",
    "within",
]

ERRORS: Mapping[str, str] = {
    "unavailable": "The tool is not available at the moment.",
    "max_uses_exceeded": "The tool may not be used any more in this turn.",
    "too_many_requests": "The tool was used too often in the last minute.",
    "invalid_tool_input": "The arguments of the call are not what the tool needs.",
    "query_too_long": "The query is too long.",
    "url_not_accessible": "The page could not be read.",
    "execution_time_exceeded": "The code ran longer than it may.",
}
"""The vendors' codes of failures, and what the model reads of each."""

_TEXT = "tw1."
_CALL = "twh1."


class CarriedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call with its answer, as a client carries it where its API has no other place for it."""

    call_id: str
    name: str
    arguments: str
    text: str
    error: bool = False

    @property
    def call(self) -> ToolCallBlock:
        return ToolCallBlock(id=self.call_id, name=self.name, arguments=self.arguments)

    @property
    def result(self) -> ToolResultBlock:
        content = (TextBlock(text=self.text),) if self.text else ()
        return ToolResultBlock(call_id=self.call_id, content=content, is_error=self.error, name=self.name)


_CARRIED = msgspec.json.Decoder(CarriedCall)


def error_text(code: str) -> str:
    """What the model reads of a failure."""
    return ERRORS.get(code, ERRORS["unavailable"])


def read_text(answer: HostedAnswer) -> str:
    """What the model reads of an answer."""
    if answer.error:
        return answer.text or error_text(answer.error)
    if answer.run is not None:
        return run_text(answer.run)
    return "".join(finding.text for finding in answer.findings) or answer.text


def run_text(run: CodeRun) -> str:
    """What the model reads of a program's run."""
    parts = [run.stdout]
    if run.stderr:
        parts.append(f"[stderr]\n{run.stderr}")
    if run.return_code:
        parts.append(f"[exit code {run.return_code}]")
    return "\n".join(part for part in parts if part) or "(no output)"


def result_block(called: HostedCalled, answer: HostedAnswer) -> ToolResultBlock:
    """The answer as the message that follows the call."""
    return carried(called, answer).result


def carried(called: HostedCalled, answer: HostedAnswer) -> CarriedCall:
    """The call and its answer in one value."""
    return CarriedCall(
        call_id=called.call_id,
        name=called.name,
        arguments=called.arguments or "{}",
        text=read_text(answer),
        error=bool(answer.error),
    )


def carrier(called: HostedCalled, answer: HostedAnswer) -> str:
    """The call and its answer as an opaque text."""
    return _CALL + base64.b64encode(msgspec.json.encode(carried(called, answer))).decode()


def read_carrier(text: str) -> CarriedCall | None:
    """The call in a carrier; None for any other text."""
    if not text.startswith(_CALL):
        return None
    try:
        return _CARRIED.decode(base64.b64decode(text[len(_CALL) :], validate=True))
    except (*UNREADABLE, ValueError):
        return None


def carried_text(finding: Finding) -> str:
    """What a client carries of one finding."""
    return _TEXT + base64.b64encode(finding.text.encode()).decode()


def read_finding(title: str, url: str, content: str) -> str:
    """What the model read of a finding; of one that was found elsewhere its title and address."""
    if content.startswith(_TEXT):
        try:
            return base64.b64decode(content[len(_TEXT) :], validate=True).decode()
        except (binascii.Error, ValueError):
            pass
    return f"{title}\n{url}\n\n"


def within(use: HostedUse, url: str) -> bool:
    """Whether a request wants results from this address."""
    host = (urlsplit(url).hostname or "").lower()

    def matches(domain: str) -> bool:
        return host == domain or host.endswith(f".{domain}")

    return (not use.allowed or any(map(matches, use.allowed))) and not any(map(matches, use.blocked))
