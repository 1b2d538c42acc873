"""What an agent's turn consists of, as it happens.

Promise: frozen values in the order things became known. One Answered, Refused, Cancelled or StepLimitReached ends every
turn that did not fail.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = [
    "AgentEvent",
    "Answered",
    "Cancelled",
    "Ended",
    "MemoryTrimmed",
    "ReasoningDelta",
    "Refused",
    "StepFinished",
    "StepLimitReached",
    "StepStarted",
    "TextDelta",
    "Tokens",
    "ToolFinished",
    "ToolRefused",
    "ToolStarted",
]


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the events."""


class Tokens(_Event, frozen=True):
    """Token counts by the server's account; zeros where it gave none."""

    prompt: int = 0
    cached: int = 0
    output: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            prompt=self.prompt + other.prompt, cached=self.cached + other.cached, output=self.output + other.output
        )


class StepStarted(_Event, frozen=True, tag="step_started"):
    """The model is asked; the first step of a turn is 1."""

    step: int


class TextDelta(_Event, frozen=True, tag="text_delta"):
    """More of the answer."""

    text: str


class ReasoningDelta(_Event, frozen=True, tag="reasoning_delta"):
    """More of the model's thinking."""

    text: str


class ToolStarted(_Event, frozen=True, tag="tool_started"):
    """A tool runs. `early`: the turn it was called in still streams."""

    call_id: str
    name: str
    arguments: str
    early: bool


class ToolFinished(_Event, frozen=True, tag="tool_finished"):
    """A tool is done. `content` is what the model will read, `failed` whether that is an error."""

    call_id: str
    name: str
    content: str
    failed: bool
    seconds: float


class ToolRefused(_Event, frozen=True, tag="tool_refused"):
    """A call was not allowed and did not run. `content` is what the model will read."""

    call_id: str
    name: str
    arguments: str
    content: str


class StepFinished(_Event, frozen=True, tag="step_finished"):
    """The model's stream is over; its tools may still run."""

    step: int
    finish: str
    tokens: Tokens


class MemoryTrimmed(_Event, frozen=True, tag="memory_trimmed"):
    """The oldest turns left the conversation so that it fits the budget."""

    turns: int


class Answered(_Event, frozen=True, tag="answered"):
    """The turn is over and this is its answer."""

    text: str
    steps: int
    tokens: Tokens


class Refused(_Event, frozen=True, tag="refused"):
    """The answer was not supported by what was retrieved: `text` is what was shown, the refusal at its end; `withheld`
    is what was not."""

    text: str
    withheld: str
    steps: int
    tokens: Tokens


class StepLimitReached(_Event, frozen=True, tag="step_limit_reached"):
    """The turn ended because it took too many steps; `text` is the best the model could say, or a sentence of ours."""

    text: str
    steps: int
    tokens: Tokens


class Cancelled(_Event, frozen=True, tag="cancelled"):
    """The turn was cancelled; `text` is what had been said by then."""

    text: str
    steps: int
    tokens: Tokens


Ended: TypeAlias = Answered | Refused | StepLimitReached | Cancelled
AgentEvent: TypeAlias = (
    StepStarted
    | TextDelta
    | ReasoningDelta
    | ToolStarted
    | ToolFinished
    | ToolRefused
    | StepFinished
    | MemoryTrimmed
    | Answered
    | Refused
    | StepLimitReached
    | Cancelled
)
