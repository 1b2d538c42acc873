"""The loop of every codec that reads by tables: a step for each state, and the moves between states.

Promise: a state changes only as its table of moves says, except that calls may be left for prose from any state. A step
that neither consumes nor moves waits for more text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from turnwire.parsers.dialect import Reader
from turnwire.parsers.scanner import blanks

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["CallSteps", "Steps"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class Steps(Generic[S, E]):
    """A reader with a step for each state: the step consumes text from a position on, may move, and returns how far it
    came. A state without a step reads nothing."""

    def __init__(
        self, steps: Mapping[S, Callable[[Any, str, int], int]], moves: Mapping[S, Mapping[E, S]], state: S
    ) -> None:
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


class CallSteps(Steps[S, E]):
    """A reader of calls: it is at `out`, which has no step, until it is entered and once it has handed back."""

    def __init__(
        self,
        machine: Machine,
        steps: Mapping[S, Callable[[Any, str, int], int]],
        moves: Mapping[S, Mapping[E, S]],
        out: S,
    ) -> None:
        super().__init__(steps, moves, out)
        self._machine = machine
        self._sink = machine.sink
        self._out = out

    def _leave(self) -> None:
        """The calls are over."""
        self._state = self._out
        self._machine.leave()

    def _refuse(self) -> None:
        """What is on trial is not a call."""
        self._state = self._out
        self._machine.refuse()

    def _hand(self, reader: Reader) -> None:
        """Another reader reads the calls."""
        self._state = self._out
        self._machine.hand(reader)

    def _break_off(self, code: str, message: str = "") -> None:
        """What comes does not belong to the calls: prose, if no call was seen, else the calls are over."""
        if self._sink.on_trial:
            self._refuse()
        else:
            self._sink.note(code, message)
            self._leave()

    def _blank(self, text: str, pos: int) -> int:
        """The position after whitespace, which is kept as structure."""
        stop = blanks(text, pos)
        if stop > pos:
            self._sink.keep(text[pos:stop])
        return stop
