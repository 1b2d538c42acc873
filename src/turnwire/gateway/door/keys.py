"""API keys and tenants: who may call what.

Promise: keys are stored as hashes and compared in constant time; when any key is set everything but the open routes is
denied without one; a key belongs to one tenant, and tenants share neither turns nor prefix cache.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import time
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from turnwire.protocols.context import PRIORITY_SPAN
from turnwire.protocols.wire import TurnFailure
from turnwire.turns import Conversation

__all__ = ["ANONYMOUS", "Key", "Keyring", "KeysError", "hash_key", "holder", "new_key", "presented", "ranked"]

log = logging.getLogger("turnwire.keys")

Scope = Literal["inference", "admin"]
_LOOK_SECONDS = 1.0
"""How often, at most, the file of keys is looked at."""


class KeysError(ValueError):
    """A keys file that cannot be used; the message says what to change."""


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One key. `concurrency` bounds its running turns, `requests_per_minute` how often it may ask, `tokens_per_day` and
    `tokens_per_month` (UTC) what it may use, cached prompt tokens not counted; None: unbounded. Turns of a key with a
    higher `priority` are served earlier; among keys of equal priority each tenant gets its share of what is served by
    `weight`. From `expires` on it opens nothing."""

    name: str
    hash: str
    tenant: str = ""
    scopes: tuple[Scope, ...] = ("inference",)
    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None
    priority: int = 0
    weight: Annotated[float, msgspec.Meta(gt=0, le=1_000)] = 1.0
    expires: datetime | None = None

    def expired(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.ends is not None and now >= self.ends

    @property
    def ends(self) -> datetime | None:
        """`expires` in UTC; a time without a zone is UTC."""
        if self.expires is None or self.expires.tzinfo is None:
            return self.expires and self.expires.replace(tzinfo=UTC)
        return self.expires.astimezone(UTC)

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
    """The conversation with the key's weight, and its priority above what the request says of itself: a request orders
    itself only among those of equal keys."""
    if not key.priority and key.weight == 1.0:
        return conversation
    context = conversation.context
    priority = key.priority * PRIORITY_SPAN + context.priority
    context = msgspec.structs.replace(context, priority=priority, weight=key.weight)
    return msgspec.structs.replace(conversation, context=context)


class Keyring:
    """All keys. Without keys and without a file of them, everybody is anonymous. A file that changes is read again
    within a second; one that has become unreadable changes nothing, one without keys lets nobody in."""

    def __init__(self, keys: Sequence[Key] = (), path: str | None = None) -> None:
        self._path = path
        self._stamp = _stamp(path)
        self._looked = time.monotonic()
        self._keys = self._checked(keys)

    @staticmethod
    def _checked(keys: Sequence[Key]) -> tuple[Key, ...]:
        names = [key.name for key in keys]
        if doubled := {name for name in names if names.count(name) > 1}:
            raise KeysError(f"Two keys have the same name: {', '.join(sorted(doubled))}.")
        for key in keys:
            if not key.hash.startswith("sha256:") or len(key.hash) != 71:
                raise KeysError(f"The key '{key.name}' has no usable hash; make one with: turnwire keys new {key.name}")
        return tuple(keys)

    def __bool__(self) -> bool:
        return self._path is not None or bool(self._keys)

    @property
    def keys(self) -> tuple[Key, ...]:
        """All of them, expired ones too."""
        return self._keys

    @classmethod
    def load(cls, path: str) -> Keyring:
        """Read a TOML file of `[[key]]` tables."""
        try:
            data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            return cls(msgspec.convert(data, _KeysFile).key, path)
        except FileNotFoundError:
            raise KeysError(f"The keys file {path} does not exist; make a key with: turnwire keys new NAME") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
            raise KeysError(f"The keys file {path} cannot be read: {error}") from None

    def find(self, secret: str | None) -> Key | None:
        """The key that a secret belongs to, even an expired one. Every hash is compared, so that time says nothing."""
        if not self:
            return ANONYMOUS
        self._reread()
        digest = hash_key(secret or "")
        found = None
        for key in self._keys:
            if hmac.compare_digest(digest, key.hash):
                found = key
        return found if secret else None

    def _reread(self) -> None:
        if self._path is None or time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys = Keyring.load(self._path).keys
        except KeysError as error:
            log.error("the keys stay as they were: %s", error)
        else:
            log.info("keys read again from %s: %d", self._path, len(self._keys))


def holder(keys: Keyring, headers: Mapping[str, str]) -> Key:
    """The key that a request carries; TurnFailure where it carries none, or one that is unknown or over."""
    if not keys:
        return ANONYMOUS
    secret = presented(headers)
    key = keys.find(secret)
    if key is None:
        if secret is None:
            message = "This gateway needs an API key: send Authorization: Bearer KEY or x-api-key: KEY."
        else:
            message = "This API key is not known here."
        raise TurnFailure("authentication", message)
    if key.expired(datetime.now(UTC)):
        raise TurnFailure("authentication", f"This API key expired on {key.ends:%Y-%m-%d %H:%M} UTC.")
    return key


def _stamp(path: str | None) -> tuple[int, int] | None:
    """What changes when a file does."""
    try:
        status = os.stat(path) if path is not None else None
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if status is not None else None
