"""The stable codes that the gateway may put into a Note, each with what it means for a reader of the log.

Promise: every code of this room is here, and no other; a test reads the sources.
"""

from __future__ import annotations

from typing import Final

__all__ = ["NOTES"]

NOTES: Final[dict[str, str]] = {
    "routing.read_ahead_off": "the next prompt was to be read ahead, which this gateway does not do",
    "routing.session_end_unsaid": "the engine has no word for the end of a session, so its cache was not informed",
    "calls.first_only": "the client takes one call at a time; the model's further calls were left out",
    "constraint.violated": "the answer is not what the client demanded",
    "model.default": "an unknown model id was answered by the default model",
    "model.fallback": "the model was not available; another one answered",
    "model.role": "a role's name was answered by the model that has this role",
    "thinking.budget_reached": "the thought was ended at its budget",
    "thinking.budget_unbounded": "the engine cannot end a thought at its budget",
}
