"""One ticker for all live turns: signs of life while an engine is silent, an end to those that stay silent.

Promise: no clock is read and no timer is set per token; a turn only flips one boolean. A stalled reader or a silent
engine is ended within one tick of its deadline.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

__all__ = ["Heartbeat", "Pulse", "Pulsed"]


class Pulsed(Protocol):
    """What the heartbeat needs of a live turn."""

    silent: bool

    @property
    def writing(self) -> bool:
        """Whether bytes wait for a client that does not read."""
        ...

    def beat(self) -> None:
        """Write a sign of life."""
        ...

    def expire(self, reason: str) -> None:
        """End the turn: `idle` (the engine is silent), `stalled` (the client does not read), `shutdown`."""
        ...


class Pulse(msgspec.Struct):
    """How long a turn has been silent or stuck in a write, in ticks; `hushed` is all its silence so far."""

    turn: Pulsed
    silent: int = 0
    stuck: int = 0
    hushed: int = 0


class Heartbeat:
    """Watches every live turn. Limits are in seconds, `tick_s` is the resolution (half a second, or finer where a limit
    is short); `quiet`: no turn lives; `begun` counts the turns so far."""

    def __init__(self, *, keepalive_s: float, idle_s: float, stall_s: float, tick_s: float | None = None) -> None:
        if tick_s is None:
            tick_s = min(0.5, max(min(keepalive_s, idle_s, stall_s) / 4, 0.005))
        self._tick_s = tick_s
        self._keepalive = max(1, round(keepalive_s / tick_s))
        self._idle = max(1, round(idle_s / tick_s))
        self._stall = max(1, round(stall_s / tick_s))
        self._pulses: dict[Pulsed, Pulse] = {}
        self._task: asyncio.Task[None] | None = None
        self.begun = 0
        self.quiet = asyncio.Event()
        self.quiet.set()

    def __len__(self) -> int:
        return len(self._pulses)

    def turns(self) -> list[Pulsed]:
        """Every live turn."""
        return list(self._pulses)

    def watch(self, turn: Pulsed) -> None:
        """Start watching; the ticker runs only while there is something to watch."""
        self._pulses[turn] = Pulse(turn)
        self.begun += 1
        self.quiet.clear()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def forget(self, turn: Pulsed) -> float:
        """Stop watching, and say how many seconds the turn's engine was silent in all."""
        pulse = self._pulses.pop(turn, None)
        if not self._pulses:
            self.quiet.set()
        return pulse.hushed * self._tick_s if pulse is not None else 0.0

    def expire_all(self, reason: str) -> None:
        """End every live turn."""
        for turn in list(self._pulses):
            turn.expire(reason)

    async def _run(self) -> None:
        while self._pulses:
            await asyncio.sleep(self._tick_s)
            for pulse in list(self._pulses.values()):
                self._check(pulse)

    def _check(self, pulse: Pulse) -> None:
        turn = pulse.turn
        pulse.stuck = pulse.stuck + 1 if turn.writing else 0
        if pulse.stuck > self._stall:
            turn.expire("stalled")
            return
        if not turn.silent:
            turn.silent = True
            pulse.silent = 0
            return
        if turn.writing:
            return
        pulse.silent += 1
        pulse.hushed += 1
        if pulse.silent > self._idle:
            turn.expire("idle")
        elif pulse.silent % self._keepalive == 0:
            turn.beat()
