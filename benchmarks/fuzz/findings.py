"""What a run under bad requests counted and found.

Promise: a finding holds all that was sent, whole, so that it can be sent again to a fresh gateway.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from benchmarks.fuzz.requests import Request
from benchmarks.fuzz.sockets import Visit

KEPT = 40
"""How many findings are kept in full."""


class Finding(msgspec.Struct):
    """What was wrong, and what was sent: the requests on one connection of which the last was answered wrongly, or a
    visit to a WebSocket. `seed` and `number` say which draw it was; a finding about the run as a whole has neither."""

    what: str
    seed: int = 0
    number: int = 0
    requests: tuple[Request, ...] = ()
    visit: Visit | None = None
    answer: str = ""

    def __str__(self) -> str:
        if self.visit is not None:
            sent = f"{self.visit.route} {[message[:300] for message, _ in self.visit.messages]!r}"
        elif self.requests:
            sent = str(self.requests[-1])
        else:
            return self.what
        return f"{self.what}: request {self.number} of seed {self.seed}: {sent} -> {self.answer[:3000]}"


class Tally(msgspec.Struct):
    """What was asked and what came of it; `routes` counts by the row of the table of routes."""

    requests: int = 0
    statuses: dict[str, int] = {}
    routes: dict[str, int] = {}
    streams: int = 0
    events: int = 0
    left: int = 0
    found: int = 0
    findings: list[Finding] = []

    def find(self, finding: Finding) -> None:
        """One more defect."""
        self.found += 1
        if len(self.findings) < KEPT:
            self.findings.append(finding)

    def add(self, other: Tally) -> None:
        """Take another's counts in."""
        for name in ("requests", "streams", "events", "left", "found"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.statuses = dict(sorted((Counter(self.statuses) + Counter(other.statuses)).items()))
        self.routes = dict(sorted((Counter(self.routes) + Counter(other.routes)).items()))
        self.findings = [*self.findings, *other.findings][:KEPT]
