"""Which served model a request means: by id, alias, role or default, and who stands in while its workers are gone.

Promise: pure and total. A request that names a served id gets that model, names that clients hard-code for tiers go by
role, side requests go by their kind where a model has that role; any choice that the name does not make is a note.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from turnwire.gateway.notes import NOTES
from turnwire.protocols.models import claude_aliases
from turnwire.turns import Note

__all__ = ["Found", "How", "Served", "ServedModels", "UnknownModel"]

How: TypeAlias = Literal["id", "alias", "role", "default", "fallback"]

NAMED_ROLES: Mapping[str, re.Pattern[str]] = {
    "opus": re.compile(r"opus|claude.*opus.*"),
    "sonnet": re.compile(r"sonnet|claude.*sonnet.*"),
    "haiku": re.compile(r"haiku|claude.*haiku.*"),
    "fable": re.compile(r"fable|claude.*fable.*"),
    "review": re.compile(r"review|codex.*review.*"),
}
"""Roles that a requested name asks for. Names are compared in lower case, without `anthropic/`."""

CLASS_ROLES: Mapping[str, str] = {
    "title": "background",
    "auxiliary": "background",
    "background": "background",
    "subagent": "subagent",
}
"""Roles that a kind of request asks for, whatever model it names."""


class Served(Protocol):
    """What resolution needs to know of a model."""

    id: str
    aliases: tuple[str, ...]
    roles: tuple[str, ...]
    fallbacks: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether it has a worker that would take a turn."""
        ...


S = TypeVar("S", bound=Served)


class UnknownModel(LookupError):
    """A name that means no served model; the message lists what there is."""


class Found(msgspec.Struct, Generic[S], frozen=True):
    """A model, how it was found, and what the client should know about that."""

    model: S
    how: How
    notes: tuple[Note, ...] = ()


class ServedModels(Generic[S]):
    """All models of a gateway, in the order they were configured."""

    def __init__(self, models: Sequence[S]) -> None:
        if not models:
            raise ValueError("a gateway serves at least one model")
        self._models = tuple(models)
        self._ids: dict[str, S] = {}
        self._aliases: dict[str, S] = {}
        self._roles: dict[str, S] = {}
        for model in models:
            self._claim(self._ids, model.id, model, "id")
        for model in models:
            for alias in model.aliases:
                if alias != model.id:
                    self._claim(self._aliases, alias, model, "alias")
            for role in model.roles:
                self._claim(self._roles, role, model, "role")
        for model in models:
            for name in model.fallbacks:
                if name not in self._ids:
                    raise ValueError(f"the fallback {name!r} of {model.id} is not a model of this gateway")
            for alias in claude_aliases(model.id):
                self._aliases.setdefault(alias, model)
        self.default = self._roles.get("default", self._models[0])

    def _claim(self, table: dict[str, S], name: str, model: S, what: str) -> None:
        taken = table.get(name) or (self._ids.get(name) if what == "alias" else None)
        if taken is not None and taken is not model:
            raise ValueError(f"the {what} {name!r} belongs to {taken.id} and to {model.id}")
        table[name] = model

    def find(self, name: str | None, turn_class: str | None = None) -> Found[S]:
        """The model for a request, or UnknownModel."""
        return self._standing_in(self._meant(name or "", CLASS_ROLES.get(turn_class or "", "")))

    def _meant(self, name: str, role: str) -> Found[S]:
        side = self._roles.get(role)
        wanted = name.removesuffix("[1m]")
        model = self._ids.get(wanted) or self._aliases.get(wanted)
        if side is not None and side is not model:
            return self._noted(side, "role", "model.role", f"{side.id} answers {role} requests")
        if model is not None:
            return Found(model, "id" if wanted in self._ids else "alias")
        if wanted in ("", "default"):
            return Found(self.default, "default")
        lowered = wanted.lower().removeprefix("anthropic/")
        for named, pattern in NAMED_ROLES.items():
            if named in self._roles and pattern.fullmatch(lowered):
                return Found(self._roles[named], "role")
        if wanted.lower().startswith(("claude", "anthropic")):
            # Harnesses hard-code these for side requests, whatever model was configured.
            return self._noted(self.default, "default", "model.default", f"{self.default.id} answers")
        raise UnknownModel(self._unknown(wanted))

    def _standing_in(self, found: Found[S]) -> Found[S]:
        if found.model.usable:
            return found
        for name in found.model.fallbacks:
            other = self._ids[name]
            if other.usable:
                noted = self._noted(other, "fallback", "model.fallback", f"{other.id} answers for {found.model.id}")
                return msgspec.structs.replace(noted, notes=(*found.notes, *noted.notes))
        return found

    @staticmethod
    def _noted(model: S, how: How, code: str, detail: str) -> Found[S]:
        return Found(model, how, (Note(code, f"{NOTES[code]} ({detail})"),))

    def _unknown(self, wanted: str) -> str:
        names = [*self._ids, *(alias for model in self._models for alias in model.aliases)]
        close = difflib.get_close_matches(wanted, names, 3, 0.6)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        listed = ", ".join(list(self._ids)[:50])
        return f"The model '{wanted[:200]}' is not served here.{hint} Served: {listed}."
