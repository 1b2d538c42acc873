"""A worker's health, from what its turns and its probes show: healthy, suspect or down.

Promise: sans-IO; every time is given. A refused worker is left alone until the time it named (or a growing pause) is
over; one that is gone or fails again and again takes no turn until a probe succeeds; one that is slower than its own
past is suspect until it speaks. Failures of turns that began before the last change say nothing new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from turnwire.engines.failures import Kind

__all__ = ["FirstToken", "Health", "State"]

State: TypeAlias = Literal["healthy", "suspect", "down"]

_BREAK_AFTER = 3
"""Failures in a row after which a worker is down, whatever its health route says."""

_OUTCOMES = 10
_ERROR_RATE = 0.5
"""A worker that fails more than every second of its last ten or so turns is down, too."""

_LONGEST_HOLD = 60.0
_FIRST_HOLD, _LAST_HOLD = 0.25, 8.0
_FIRST_BREAK, _LAST_BREAK = 0.5, 30.0

Effect: TypeAlias = Literal["none", "hold", "count", "gone"]

_EFFECT: Mapping[Kind, Effect] = {
    "unreachable": "gone",
    "disconnected": "gone",
    "overloaded": "hold",
    "timeout": "count",
    "internal": "count",
    "context_overflow": "none",
    "invalid_request": "none",
}


class Health:
    """One worker's. `why` is the last reason for doubt; `failures` are those since its last completed turn; no turn is
    to be given before `not_before`; `checking` says that a probe is wanted, `thorough` that it has to generate."""

    def __init__(self) -> None:
        self.state: State = "healthy"
        self.why = ""
        self.failures = 0
        self.error_rate = 0.0
        self.not_before = 0.0
        self.first_token = FirstToken()
        self._held = False
        self._refusals = 0
        self._outcomes = 0
        self._changed = 0.0
        self._breaks = 0

    def admits(self, now: float) -> bool:
        """Whether a turn may be given."""
        return self.state != "down" and now >= self.not_before

    @property
    def checking(self) -> bool:
        """Whether a probe has to clear the doubt. Time alone clears a refusal."""
        return self.state == "down" or (self.state == "suspect" and not self._held)

    @property
    def thorough(self) -> bool:
        """Whether the probe has to generate: the health route of a worker that fails its turns proves nothing."""
        return self.failures > 1 or self.state == "suspect"

    # ------------------------------------------------------------------------------------------ what turns tell

    def spoke(self) -> None:
        """A worker in doubt gave a token."""
        if self.state == "suspect" and not self.failures and not self._held:
            self._settle()

    def completed(self) -> None:
        """A turn came to its own end."""
        self._book(0.0)
        self.failures = self._breaks = 0
        if not self._held:
            self._refusals = 0
            if self.state == "suspect":
                self._settle()

    def failed(self, word: Kind, said: str, *, began: float, now: float, retry_after: float | None = None) -> None:
        """A turn that began at `began` failed."""
        effect = _EFFECT[word]
        if effect == "none" or (began < self._changed and effect != "hold"):
            return
        if effect == "hold":
            self._hold(said, now, retry_after)
            return
        self.why = said
        self.failures += 1
        self._book(1.0)
        if effect == "gone":
            self._change("down", now)
        elif self.failures >= _BREAK_AFTER or (self._outcomes >= _OUTCOMES and self.error_rate > _ERROR_RATE):
            pause = min(_FIRST_BREAK * 2**self._breaks, _LAST_BREAK)
            self._breaks += 1
            self.not_before = now + pause
            self._change("down", now)
        else:
            self._change("suspect", now)

    def late(self, said: str, now: float) -> None:
        """A turn waits longer for a token than this worker's past explains."""
        if self.state == "healthy":
            self.why = said
            self._change("suspect", now)

    def _hold(self, said: str, now: float, retry_after: float | None) -> None:
        if self.state == "down":
            return
        pause = min(_FIRST_HOLD * 2**self._refusals, _LAST_HOLD) if retry_after is None else retry_after
        self._refusals = min(self._refusals + 1, 8)
        self.why = said
        self.not_before = max(self.not_before, now + min(pause, _LONGEST_HOLD))
        self.state, self._held = "suspect", True

    # ----------------------------------------------------------------------------------------- what probes tell

    def unreached(self, said: str, now: float) -> None:
        """The worker could not be started."""
        self.why = said
        self._change("down", now)

    def probed(self, ok: bool, now: float, *, answers: bool) -> None:
        """A probe came back: `ok` if the worker did all that was asked of it, `answers` if it is there at all."""
        if ok:
            self._settle()
        elif not answers:
            self.why = self.why or "its health route does not answer"
            self._change("down", now)

    def rested(self, now: float) -> None:
        """The pause that a refusal named is over."""
        if self._held and now >= self.not_before:
            self.state, self.why, self._held = "healthy", "", False

    # -------------------------------------------------------------------------------------------------- changes

    def _settle(self) -> None:
        self.state, self.why, self._held, self.not_before = "healthy", "", False, 0.0

    def _change(self, state: State, now: float) -> None:
        self.state, self._changed, self._held = state, now, False

    def _book(self, failure: float) -> None:
        self._outcomes += 1
        self.error_rate += (failure - self.error_rate) / min(self._outcomes, _OUTCOMES)


class FirstToken:
    """How long a worker takes to its first token, by how much of the prompt it has to read."""

    _FIXED = 512
    """Tokens of prompt that the time for everything else is worth."""

    _ENOUGH = 5
    _FACTOR = 8.0
    _SLOWEST = 200.0
    """Tokens a second that are read at least, as long as nothing better is known."""

    def __init__(self) -> None:
        self._seconds_per_token = 0.0
        self._seen = 0

    def observed(self, seconds: float, tokens: int) -> None:
        """A first token came, `seconds` after a prompt of `tokens` that were not in the cache."""
        self._seen += 1
        pace = seconds / (tokens + self._FIXED)
        self._seconds_per_token += (pace - self._seconds_per_token) / min(self._seen, 20)

    def deadline(self, tokens: int, floor: float) -> float:
        """After how many seconds without a token something is wrong."""
        if self._seen < self._ENOUGH:
            return floor + tokens / self._SLOWEST
        return max(floor, self._FACTOR * self._seconds_per_token * (tokens + self._FIXED))
