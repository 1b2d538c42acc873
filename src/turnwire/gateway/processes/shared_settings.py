"""Whether settings can be served by several processes, and what those processes must have in common.

Promise: a setting that would make processes disagree is replaced by one they share, or refused with words that say what
to change.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import msgspec

from turnwire.gateway.settings import Settings, SettingsError
from turnwire.gateway.setup.seal_keys import default_key_file, seal_keys

__all__ = ["shared_settings"]


def shared_settings(settings: Settings, folder: Path) -> Settings:
    """The settings that each of several processes runs with. Without a store or a file of usage they share
    one in `folder`, which lives as long as they do."""
    for model in settings.served():
        if any(spec.partition(":")[0] == "embedded" for spec in model.specs):
            raise SettingsError(
                "The embedded model runs inside its gateway's process, so it is served by one: leave --workers out, or "
                "run the model in a server of its own and name that with --engine."
            )
    if settings.store == "memory":
        raise SettingsError(
            f"{settings.workers} processes cannot share what is kept in memory; set --store sqlite:FILE or redis://, "
            "or leave it out for a file that lasts until the gateway stops."
        )
    changes: dict[str, str] = {}
    if settings.store is None:
        changes["store"] = f"sqlite:{folder / 'store.db'}"
    if settings.usage is None:
        changes["usage"] = str(folder / "usage.db")
    seal_keys(settings)
    if settings.seal_key is None and settings.seal_key_file is None and not default_key_file().exists():
        changes["seal_key"] = secrets.token_urlsafe(32)
    return msgspec.structs.replace(settings, **changes)
