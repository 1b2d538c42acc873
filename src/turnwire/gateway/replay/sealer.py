"""The seals of a capture, without the key that made them.

Promise: a replayed turn gets the seals that its captured answer carried, and a request that brings such a seal back is
answered from it. What was sealed outside the capture stays closed, and is counted.
"""

from __future__ import annotations

import os
import re

from turnwire.capture.reading import Capture
from turnwire.prompts.recall.seals import Sealer, Segment, Unopened

__all__ = ["CapturedSealer"]

_SEAL = re.compile(r"tw1\.[A-Za-z0-9_-]+")


class CapturedSealer(Sealer):
    """Seals and opens by what the capture shows. `unknown` counts seals that it does not hold."""

    def __init__(self, capture: Capture) -> None:
        super().__init__([os.urandom(32)])
        self._made = {turn.turn_id: list(dict.fromkeys(_SEAL.findall(turn.answered))) for turn in capture.turns}
        self._segments: dict[str, tuple[Segment, str, str]] = {}
        self.unknown = 0

    def seal(self, segment: Segment, *, model: str, tenant: str, salt: bytes) -> str:
        made = self._made.get(segment.turn, [])
        seal = (
            made[segment.number]
            if segment.number < len(made)
            else super().seal(segment, model=model, tenant=tenant, salt=salt)
        )
        self._segments[seal] = (segment, model, tenant)
        return seal

    def open(self, seal: str, *, model: str, tenant: str) -> Segment | Unopened:
        known = self._segments.get(seal)
        if known is None:
            self.unknown += 1
            return Unopened("foreign")
        segment, its_model, its_tenant = known
        if its_model != model:
            return Unopened("other_model")
        return segment if its_tenant == tenant else Unopened("other_tenant")
