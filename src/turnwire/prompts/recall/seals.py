"""Sealed turns: the exact output of a turn, encrypted and authenticated, in the text that clients carry back unread.

Promise: a seal opens only with a key it was made with, for the model and the tenant it was made for, and unchanged.
Anything else is a reason, never an exception, and never a part of the content. A full set of a turn's seals restores
its output ids exactly; nothing is kept on the server for it.
"""

from __future__ import annotations

import base64
import binascii
import os
import struct
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from threading import Lock
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from turnwire.prompts.recall.seal_bytes import MOST_IDS, PayloadError, Segment, pack, unpack

__all__ = ["SealRefusal", "Sealer", "Segment", "ShapeSource", "TurnSealer", "Unopened"]

SealRefusal: TypeAlias = Literal["foreign", "truncated", "tampered", "other_model", "other_tenant", "too_large"]

_PREFIX = "tw1."
# The open part: key id, model tag, tenant tag, salt, segment number, length of the closed part. The tags are keyed
# hashes: they distinguish the wrong model from the wrong tenant without revealing either.
_OPEN = struct.Struct(">4s4s4s16sHI")
_TAG_SIZE = 16
_MOST_CHARS = 8 * 1024 * 1024
_MOST_SEGMENTS = 0xFFFF
_MOST_TAIL = 2048
_MOST_REMEMBERED = 4 * 1024 * 1024  # bytes of the seals made last, with what they hold
_REMEMBERED_OVERHEAD = 800


class Unopened(msgspec.Struct, frozen=True):
    """Why a seal was not opened."""

    reason: SealRefusal


class _Remembered(msgspec.Struct, frozen=True, gc=False):
    """What a seal holds, for whom it was made, and roughly its bytes."""

    segment: Segment
    model: str
    tenant: str
    size: int


class ShapeSource(Protocol):
    """Tells how the turn looks to the client so far; see `recall_shape.Witness`."""

    def shape(self, *, last: bool) -> bytes: ...


@cache
def _cipher() -> tuple[Any, type[Exception]]:
    """AES-GCM, and what it raises where something was changed. The library takes megabytes, so it waits for the first
    seal: many gateways never make one."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM, InvalidTag


class _Key:
    """One master key. Every turn gets a key of its own, derived from the master key and the turn's random salt, so
    that the segment number is all the nonce that is needed and no number of turns wears the master key out."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < 16:
            raise ValueError("a seal key needs at least 16 bytes; generate one with: openssl rand -base64 32")
        self._master = blake2b(secret, digest_size=32, person=b"turnwire master").digest()
        self.id = self.tag(b"key", "")

    def tag(self, kind: bytes, text: str) -> bytes:
        return blake2b(text.encode(), key=self._master, digest_size=4, person=b"turnwire " + kind).digest()

    def of_turn(self, salt: bytes) -> Any:
        derived = blake2b(salt, key=self._master, digest_size=32, person=b"turnwire seal").digest()
        return _cipher()[0](derived)


class Sealer:
    """Makes and opens seals. The first key seals; all keys open, so that keys can be replaced without losing turns."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise ValueError("at least one seal key is needed")
        if find_spec("cryptography") is None:
            raise ValueError(
                "the `cryptography` library is not installed; install it with: pip install 'turnwire[server]'"
            )
        made = [_Key(bytes(key)) for key in keys]
        self._newest = made[0]
        self._keys = {key.id: key for key in reversed(made)}
        self._remembered: OrderedDict[str, _Remembered] = OrderedDict()
        self._remembered_bytes = 0
        self._lock = Lock()

    def turn(
        self,
        turn_id: str,
        *,
        model: str,
        tenant: str,
        tail: str | None = None,
        shape: ShapeSource | None = None,
    ) -> TurnSealer:
        """A sealer for the output of one turn. `tail` is the end of its prompt (`Prompt.tail`); `shape` watches what
        the client sees of it (`recall_shape.Witness`)."""
        return TurnSealer(self, turn_id, model=model, tenant=tenant, tail=tail, shape=shape)

    def seal(self, segment: Segment, *, model: str, tenant: str, salt: bytes) -> str:
        """The seal of a segment. `salt` is 16 random bytes, drawn once for a turn."""
        key = self._newest
        payload = pack(segment)
        head = _OPEN.pack(
            key.id,
            key.tag(b"model", model),
            key.tag(b"tenant", tenant),
            salt,
            segment.number,
            len(payload) + _TAG_SIZE,
        )
        bound = _bound(head, model, tenant)
        closed: bytes = key.of_turn(salt).encrypt(_nonce(segment.number), payload, bound)
        seal = _PREFIX + _spelled(head + closed)
        self._keep(
            seal, _Remembered(segment, model, tenant, _REMEMBERED_OVERHEAD + 2 * len(seal) + 4 * len(segment.ids))
        )
        return seal

    @property
    def remembered(self) -> int:
        """How many seals are opened without being decrypted."""
        return len(self._remembered)

    def _keep(self, seal: str, made: _Remembered) -> None:
        """Remember what a seal holds: the next request mostly brings it back."""
        if made.size > _MOST_REMEMBERED // 4:
            return
        with self._lock:
            before = self._remembered.pop(seal, None)
            self._remembered[seal] = made
            self._remembered_bytes += made.size - (before.size if before is not None else 0)
            while self._remembered_bytes > _MOST_REMEMBERED:
                self._remembered_bytes -= self._remembered.popitem(last=False)[1].size

    def encrypted(self, payload: bytes, place: str) -> bytes:
        """`payload` for a store that others may read; it opens only at the place that it was made for."""
        salt = os.urandom(16)
        closed: bytes = self._newest.of_turn(salt).encrypt(_nonce(0), payload, place.encode())
        return self._newest.id + salt + closed

    def decrypted(self, value: bytes, place: str) -> bytes | None:
        """What was encrypted for `place`; None where it was not, or was changed."""
        key = self._keys.get(value[:4])
        if key is None or len(value) < 20 + _TAG_SIZE:
            return None
        try:
            opened: bytes = key.of_turn(value[4:20]).decrypt(_nonce(0), value[20:], place.encode())
        except _cipher()[1]:
            return None
        return opened

    def open(self, seal: str, *, model: str, tenant: str) -> Segment | Unopened:
        """The segment inside, or the reason why not."""
        made = self._remembered.get(seal)
        if made is not None and made.model == model and made.tenant == tenant:
            return made.segment
        if not seal.startswith(_PREFIX):
            return Unopened("foreign")
        if len(seal) > _MOST_CHARS:
            return Unopened("too_large")
        text = seal[len(_PREFIX) :]
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):  # a ValueError is text outside ASCII
            return Unopened("truncated" if len(text) % 4 == 1 else "tampered")
        if len(raw) < _OPEN.size:
            return Unopened("truncated")
        head, closed = raw[: _OPEN.size], raw[_OPEN.size :]
        key_id, model_tag, tenant_tag, salt, number, size = _OPEN.unpack(head)
        key = self._keys.get(key_id)
        if key is None:
            return Unopened("foreign")
        if len(closed) < size:
            return Unopened("truncated")
        if _spelled(raw) != text:  # the decoder takes several spellings; one was made
            return Unopened("tampered")
        if key.tag(b"model", model) != model_tag:
            return Unopened("other_model")
        if key.tag(b"tenant", tenant) != tenant_tag:
            return Unopened("other_tenant")
        try:
            payload = key.of_turn(salt).decrypt(_nonce(number), closed, _bound(head, model, tenant))
            return unpack(payload, number)
        except _cipher()[1]:
            return Unopened("tampered")
        except PayloadError:
            return Unopened("tampered")


class TurnSealer:
    """Seals a turn's output as it comes: `add` every batch of ids, `seal` where a thought closes, `finish` at the end.
    A batch may reach over the end of a thought; the seal then covers a few ids more, and the segments still join.
    `sealed`: how many ids of the turn are in seals already."""

    def __init__(
        self,
        sealer: Sealer,
        turn_id: str,
        *,
        model: str,
        tenant: str,
        tail: str | None = None,
        shape: ShapeSource | None = None,
    ) -> None:
        self._sealer = sealer
        self._turn = turn_id
        self._model = model
        self._tenant = tenant
        self._tail = tail if tail is None else tail[-_MOST_TAIL:]
        self._shape = shape
        self._salt = b""
        self._ids: array[int] = array("I")
        self._number = 0
        self.sealed = 0
        self._broken = False

    def add(self, ids: Sequence[int]) -> None:
        """More of the output."""
        self._ids.extend(ids)

    def seal(self) -> str:
        """The seal of everything since the one before; empty where the engine has reported no ids or the turn is too
        large to be sealed."""
        if not self._ids and not self._number:
            return ""
        return self._next(last=False)

    def finish(self) -> str | None:
        """The seal of the rest of the turn, or None where there is nothing to seal."""
        if not self._ids and not self._number:
            return None
        return self._next(last=True) or None

    def _next(self, *, last: bool) -> str:
        self._broken = self._broken or len(self._ids) > MOST_IDS or self._number > _MOST_SEGMENTS
        if self._broken:
            self._ids = array("I")
            return ""
        segment = Segment(
            turn=self._turn,
            number=self._number,
            start=self.sealed,
            last=last,
            ids=self._ids,
            shape=self._shape.shape(last=last) if self._shape else b"",
            tail=None if self._number else self._tail,
        )
        self._salt = self._salt or os.urandom(16)
        made = self._sealer.seal(segment, model=self._model, tenant=self._tenant, salt=self._salt)
        self.sealed += len(self._ids)
        self._number += 1
        self._ids = array("I")
        return made


def _spelled(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")


def _bound(head: bytes, model: str, tenant: str) -> bytes:
    """What a seal is tied to besides its content."""
    parts = [head, *(text.encode() for text in (_PREFIX, model, tenant))]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
