"""The models a gateway serves, as rows that every API's model list is drawn from.

Promise: one struct, no wire shape. Resolution of a requested id is total over known ids and aliases, and says whether
the id was known or a stand-in was chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

__all__ = ["ModelRow", "claude_aliases", "resolve_model"]


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One served model. `created` is unix seconds; `window` and `max_output` are tokens; `aliases` are further ids that
    mean this model, `roles` what it stands in for, `hosted` the tools that the gateway runs for it."""

    id: str
    display_name: str = ""
    description: str = ""
    created: int = 0
    window: int | None = None
    max_output: int | None = None
    input_modalities: tuple[str, ...] = ("text",)
    reasoning: bool = False
    tools: bool = True
    owner: str = "turnwire"
    aliases: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    hosted: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name to show a person."""
        return self.display_name or self.id


def claude_aliases(model_id: str) -> tuple[str, ...]:
    """Ids under which clients that only list names with `claude` or `anthropic` can discover a model."""
    lowered = model_id.lower()
    if "claude" in lowered or "anthropic" in lowered:
        return ()
    return (f"anthropic/{model_id}", f"claude-{model_id.rsplit('/', 1)[-1]}")


def resolve_model(requested: str, rows: Sequence[ModelRow], default: str | None = None) -> tuple[ModelRow | None, bool]:
    """The row of a requested id, and whether the id itself is known. An unknown `claude*` or `anthropic*` id, which
    harnesses hard-code for side calls, falls to `default`; any other unknown id gives None."""
    wanted = requested.removesuffix("[1m]")
    for row in rows:
        if wanted == row.id or wanted in row.aliases:
            return row, True
    for row in rows:
        if wanted in claude_aliases(row.id):
            return row, True
    if default is not None and wanted.lower().startswith(("claude", "anthropic")):
        return _by_id(rows, default), False
    return None, False


def _by_id(rows: Iterable[ModelRow], wanted: str) -> ModelRow | None:
    return next((row for row in rows if row.id == wanted), None)
