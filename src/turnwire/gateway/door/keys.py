"""API keys and tenants: who may call what.

Promise: keys are stored as hashes and compared in constant time; when any key is set everything but the open routes is
denied without one; a key belongs to one tenant, and tenants share neither turns nor prefix cache.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from turnwire.protocols.context import PRIORITY_BOUND
from turnwire.turns import Conversation

__all__ = ["ANONYMOUS", "Key", "Keyring", "KeysError", "hash_key", "new_key", "presented", "ranked"]

Scope = Literal["inference", "admin"]


class KeysError(ValueError):
    """A keys file that cannot be used; the message says what to change."""


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One key. `concurrency` bounds its running turns, `requests_per_minute` how often it may ask; None: unbounded.
    Turns of a key with a higher `priority` are served earlier."""

    name: str
    hash: str
    tenant: str = ""
    scopes: tuple[Scope, ...] = ("inference",)
    concurrency: int | None = None
    requests_per_minute: int | None = None
    priority: int = 0

    @property
    def owner(self) -> str:
        """The tenant; a key that names none is a tenant of its own."""
        return self.tenant or self.name


ANONYMOUS = Key(name="anonymous", hash="", tenant="default", scopes=("inference", "admin"))
"""Who everybody is while no key is set."""


class _KeysFile(msgspec.Struct, forbid_unknown_fields=True):
    key: tuple[Key, ...] = ()


def hash_key(secret: str) -> str:
    """How a key is stored. Keys are long and random, so one round of SHA-256 is enough."""
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()


def new_key() -> str:
    """A fresh key, to be shown once."""
    return "tw-" + secrets.token_urlsafe(32)


def presented(headers: Mapping[str, str]) -> str | None:
    """The key a request carries: `Authorization: Bearer` or `x-api-key`."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and credentials.strip():
        return credentials.strip()
    return headers.get("x-api-key") or None


def ranked(conversation: Conversation, key: Key) -> Conversation:
    """The conversation with the key's priority above what the request says of itself: a request orders itself only
    among those of equal keys."""
    if not key.priority:
        return conversation
    context = conversation.context
    context = msgspec.structs.replace(context, priority=key.priority * 2 * PRIORITY_BOUND + context.priority)
    return msgspec.structs.replace(conversation, context=context)


class Keyring:
    """All keys. Empty means that everybody is anonymous."""

    def __init__(self, keys: Sequence[Key] = ()) -> None:
        names = [key.name for key in keys]
        if doubled := {name for name in names if names.count(name) > 1}:
            raise KeysError(f"Two keys have the same name: {', '.join(sorted(doubled))}.")
        for key in keys:
            if not key.hash.startswith("sha256:") or len(key.hash) != 71:
                raise KeysError(f"The key '{key.name}' has no usable hash; make one with: turnwire keys new {key.name}")
        self._keys = tuple(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    @classmethod
    def load(cls, path: str) -> Keyring:
        """Read a TOML file of `[[key]]` tables."""
        try:
            data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            return cls(msgspec.convert(data, _KeysFile).key)
        except FileNotFoundError:
            raise KeysError(f"The keys file {path} does not exist; make a key with: turnwire keys new NAME") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
            raise KeysError(f"The keys file {path} cannot be read: {error}") from None

    def find(self, secret: str | None) -> Key | None:
        """The key behind a secret. Every stored hash is compared, so that time says nothing."""
        if not self._keys:
            return ANONYMOUS
        digest = hash_key(secret or "")
        found = None
        for key in self._keys:
            if hmac.compare_digest(digest, key.hash):
                found = key
        return found if secret else None
