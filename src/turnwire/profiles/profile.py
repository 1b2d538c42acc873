"""A model family's profile: a frozen value of what its publisher says about it.

Promise: nothing here is guessed. A field that the model's card does not settle is left at its default, and the
engine's or the template's own answer holds.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from turnwire.conventions import EFFORTS, nearest_effort
from turnwire.turns import Sampling, Thinking

__all__ = ["EngineAdvice", "Profile", "ThinkingSwitches"]

"""Every effort a client may name, from least to most."""


class ThinkingSwitches(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How thinking is switched, as template arguments. `default` is what the model does unasked: `always` cannot be
    switched off, `never` has no thoughts. `keep_history` keeps the thoughts of earlier user turns; `budget` names the
    argument that takes a token budget."""

    default: Literal["on", "off", "adaptive", "always", "never"] = "never"
    on: dict[str, Any] = {}
    off: dict[str, Any] = {}
    adaptive: dict[str, Any] = {}
    keep_history: dict[str, Any] = {}
    budget: str | None = None


class EngineAdvice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to start an engine for this model. The parsers matter only behind `--engine openai:URL`, where the engine
    and not this gateway reads the output."""

    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    flags: tuple[str, ...] = ()


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model family. `dialect` and `reasoning` are names of the parsers' registry (`reasoning` None: the dialect's
    own); `fenced_json` says that it writes calls as fenced JSON and not as its template shows them. `effort` maps a
    client's effort to template arguments."""

    name: str
    title: str
    vendor: str = ""
    ids: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    dialect: str
    reasoning: str | None = None
    window: int | None = None
    tools: bool = True
    parallel_calls: bool = True
    images: bool = False
    fenced_json: bool = False
    sampling: Sampling = Sampling()
    thinking: ThinkingSwitches = ThinkingSwitches()
    effort: dict[str, dict[str, Any]] = {}
    engines: dict[str, EngineAdvice] = {}
    description: str = ""

    @property
    def efforts(self) -> tuple[str, ...]:
        """The efforts that make a difference, from least to most."""
        return tuple(name for name in EFFORTS if name in self.effort)

    @property
    def default_effort(self) -> str | None:
        """The effort that the model's own default amounts to."""
        asleep = self.thinking.default in ("off", "never")
        awake = [name for name in self.efforts if name != "none"]
        if not self.effort or (asleep and "none" in self.effort):
            return "none" if self.effort else None
        return "medium" if "medium" in awake else awake[-1]

    def nearest_effort(self, wanted: str) -> str | None:
        """The effort of this model that is closest to the wanted one; of two equally close, the lower. None where it
        has none, or where nobody knows what was wanted."""
        # Asking for any thought at all never turns thinking off.
        choice = [name for name in self.efforts if name != "none" or wanted == "none"] or list(self.efforts)
        return nearest_effort(wanted, choice)

    def template_args(self, thinking: Thinking) -> dict[str, Any]:
        """What a client's wish for thinking means to this model's template."""
        args: dict[str, Any] = {}
        if thinking.mode is not None:
            args.update(getattr(self.thinking, thinking.mode))
        if thinking.mode != "off" and thinking.effort is not None:
            nearest = self.nearest_effort(thinking.effort)
            args.update(self.effort[nearest] if nearest is not None else {})
        if thinking.mode != "off" and thinking.budget is not None and self.thinking.budget is not None:
            args[self.thinking.budget] = thinking.budget
        if thinking.history == "keep":
            args.update(self.thinking.keep_history)
        return args
