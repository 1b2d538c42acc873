"""A conversation that is remembered, and trimmed to a budget by whole turns.

Promise: sans-IO. Messages leave only together with the turn they belong to, oldest first, so that no result is left
without its call; the instructions and the running turn always stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

__all__ = ["Memory"]

_CHARS_PER_TOKEN = 3.5
_FEWEST_CHARS = 200


class Memory:
    """`budget` bounds the tokens of the remembered conversation, `turns` the number of questions in it; None: no bound.
    Tokens are reckoned from characters, by the rate that the server's own counts show."""

    def __init__(self, *, budget: int | None = 16_000, turns: int | None = None) -> None:
        if (budget is not None and budget < 1) or (turns is not None and turns < 1):
            raise ValueError("A memory needs room for one turn at least: budget and turns must be above 0.")
        self.budget = budget
        self.turns = turns
        self._turns: list[list[dict[str, Any]]] = []
        self._rate = 1 / _CHARS_PER_TOKEN

    def __len__(self) -> int:
        """How many turns are remembered."""
        return len(self._turns)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All remembered messages, oldest first."""
        return [message for turn in self._turns for message in turn]

    def begin(self, question: dict[str, Any]) -> None:
        """A new turn, with the user's message."""
        self._turns.append([question])

    def add(self, messages: Iterable[dict[str, Any]]) -> None:
        """More of the running turn."""
        self._turns[-1].extend(messages)

    def forget_last(self) -> None:
        """The running turn never was."""
        self._turns.pop()

    def clear(self) -> None:
        self._turns.clear()

    def load(self, messages: Iterable[dict[str, Any]]) -> None:
        """Remember these messages instead; each user message begins a turn."""
        self._turns = []
        for message in messages:
            if message.get("role") == "user" or not self._turns:
                self._turns.append([])
            self._turns[-1].append(message)

    def trim(self, fixed: int = 0) -> int:
        """Let the oldest turns go until the rest fits; `fixed` is what else the prompt holds, in tokens. How many
        went."""
        gone = 0
        while len(self._turns) > 1 and self._is_over(fixed):
            del self._turns[0]
            gone += 1
        return gone

    def learn(self, chars: int, tokens: int) -> None:
        """The server counted a prompt of so many characters as so many tokens."""
        if chars >= _FEWEST_CHARS and tokens > 0:
            self._rate = tokens / chars

    def tokens(self, value: object | None = None) -> int:
        """About how many tokens a value costs as part of a prompt; without one, the whole conversation."""
        return round(chars(self.messages if value is None else value) * self._rate)

    def _is_over(self, fixed: int) -> bool:
        if self.turns is not None and len(self._turns) > self.turns:
            return True
        return self.budget is not None and fixed + self.tokens() > self.budget


def chars(value: object) -> int:
    """The characters of a value as JSON, without what a model never reads."""
    if isinstance(value, list):
        return sum(chars(item) for item in value)
    if isinstance(value, dict):
        return len(msgspec.json.encode({key: item for key, item in value.items() if key != "reasoning_details"}))
    return len(msgspec.json.encode(value))
