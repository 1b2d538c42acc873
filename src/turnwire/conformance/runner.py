"""Runs the rules against a server.

Promise: every rule of every wanted API gets a cell, whatever the server does; only a server that cannot be reached at
all raises.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping, Sequence

import turnwire
from turnwire.conformance.apis.chat import Chat
from turnwire.conformance.apis.interface import Api
from turnwire.conformance.apis.messages import Messages
from turnwire.conformance.apis.responses import Responses
from turnwire.conformance.exchange import Exchange, Limits, Unreachable, Wire
from turnwire.conformance.probe import Probe, Verdict
from turnwire.conformance.rules.table import CLIENT_RULES, RULES, Rule
from turnwire.conformance.stand_in import StandIn
from turnwire.conformance.values import items, string
from turnwire.conformance.words import APIS, ApiName, Cell, Finding, Report, clipped

__all__ = ["CLIENTS", "NoModel", "run"]

CLIENTS: dict[ApiName, Api] = {"chat": Chat(), "messages": Messages(), "responses": Responses()}
_ABSENT = (404, 405, 501)


class NoModel(Exception):
    """The server lists no model and none was named."""


async def run(
    url: str,
    *,
    apis: Sequence[ApiName] = APIS,
    model: str | None = None,
    key: str | None = None,
    stand_in: StandIn | None = None,
    scripted: bool | None = None,
    only: Sequence[str] = (),
    most: int = 2048,
    excused: Mapping[str, str] | None = None,
    clients: bool = False,
    again: bool = False,
    limits: Limits | None = None,
    told: Callable[[Cell], None] = lambda cell: None,
) -> Report:
    """A report about the server at `url`. `scripted` says that the scenes are played by the engine behind it; `only`
    takes rules by the beginning of their names; `most` is the longest turn in tokens; `excused` are rules that a
    stand-in cannot show, each with the reason; `clients` adds the rules of real clients; `again` judges what is
    broken a second time, with turns of its own, and says so; `told` is called with each cell as it is judged."""
    played = stand_in is not None if scripted is None else scripted
    cells: list[Cell] = []
    async with Wire(url, key, limits) as wire:
        listed = await wire.get("/v1/models")
        name = model or _listed(listed, url)
        for api in apis:
            probe = Probe(wire, CLIENTS[api], name, stand_in, played, most)
            table = (*RULES, *CLIENT_RULES) if clients else RULES
            rules = [rule for rule in table if api in rule.apis and (not only or rule.name.startswith(tuple(only)))]
            absent = await _absent(probe)
            for rule in rules:
                began = time.monotonic()
                reason = (excused or {}).get(rule.name)
                finding = absent or (Finding("unknown", reason) if reason else await _judged(rule, probe))
                if again and finding.word == "broken" and absent is None:
                    fresh = Probe(wire, CLIENTS[api], name, stand_in, played, most)
                    finding = _twice(finding, await _judged(rule, fresh))
                cells.append(
                    Cell(
                        rule=rule.name,
                        api=api,
                        word=finding.word,
                        reason=clipped(finding.reason),
                        evidence=finding.evidence,
                        seconds=round(time.monotonic() - began, 2),
                    )
                )
                told(cells[-1])
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Report(url=url, model=name, taken=today, turnwire=turnwire.__version__, scripted=played, cells=cells)


async def _judged(rule: Rule, probe: Probe) -> Finding:
    try:
        return await rule.judge(probe)
    except Verdict as verdict:
        return verdict.finding
    except Unreachable as gone:
        return Finding("broken", "the server is gone", (clipped(str(gone)),))


def _twice(first: Finding, second: Finding) -> Finding:
    """A finding that was looked at again: what happened once has happened, but it is said that it was once."""
    if second.word == first.word:
        return Finding(first.word, first.reason, (*first.evidence, "judged twice: the same"))
    seen = f"judged again, with other turns: {second.word}: {second.reason}"
    return Finding(first.word, f"{first.reason} (in one of two times)", (*first.evidence, seen))


async def _absent(probe: Probe) -> Finding | None:
    """Why nothing of an API can be judged, where it is not served at all."""
    try:
        asked = await probe.wire.post(probe.api.path, probe.body(most=16), probe.headers())
    except Unreachable as gone:
        return Finding("broken", "the server is gone", (clipped(str(gone)),))
    if asked.status in _ABSENT:
        said = clipped(asked.body.decode("utf-8", "replace"), 160)
        return Finding("unsupported", f"the API is not served: HTTP {asked.status} at {probe.api.path}", (said,))
    return None


def _listed(listed: Exchange, url: str) -> str:
    rows = items(listed.document, "data")
    found = next((name for row in rows if (name := string(row, "id"))), None)
    if found is None:
        raise NoModel(f"{url}/v1/models lists no model (HTTP {listed.status}); name one with --model.")
    return found
