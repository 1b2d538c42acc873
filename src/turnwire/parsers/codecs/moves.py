"""The loop of every codec that reads by a table of steps, and the ways out of its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from turnwire.parsers.scanner import blanks

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["CallMoves", "Moves"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class Moves(Generic[S, E]):
    """A reader with a step for each state: the step consumes text from a position on, may change the state, and
    returns how far it came. One that does neither waits for more text; a state without a step reads nothing."""

    def __init__(
        self,
        machine: Machine,
        steps: Mapping[S, Callable[[Any, str, int], int]],
        moves: Mapping[S, Mapping[E, S]],
        state: S,
    ) -> None:
        self._machine = machine
        self._sink = machine.sink
        self._steps = steps
        self._moves = moves
        self._state = state

    def _go(self, on: E) -> None:
        """What was read leads to the next state."""
        self._state = self._moves[self._state][on]

    def run(self, text: str, pos: int) -> int:
        """Consume text, step by step, until more is needed or somebody else reads on."""
        end, step_of = len(text), self._steps.get
        while pos < end:
            state = self._state
            step = step_of(state)
            if step is None:
                return pos
            new = step(self, text, pos)
            if new == pos and self._state is state:
                return new
            pos = new
        return pos


class CallMoves(Moves[S, E]):
    """A reader of calls: it stands at `out`, which has no step, until it is entered and once it has handed back."""

    def _leave(self, on: E) -> None:
        """The calls are over."""
        self._go(on)
        self._machine.leave()

    def _refuse(self, on: E) -> None:
        """What is on trial is no call."""
        self._go(on)
        self._machine.refuse()

    def _break_off(self, on: E, code: str, message: str = "") -> None:
        """What comes does not belong to the calls: prose, if no call was seen, else the calls are over."""
        if self._sink.on_trial:
            self._refuse(on)
        else:
            self._sink.note(code, message)
            self._leave(on)

    def _blank(self, text: str, pos: int) -> int:
        """The position behind whitespace, which is kept as structure."""
        stop = blanks(text, pos)
        if stop > pos:
            self._sink.keep(text[pos:stop])
        return stop
