"""Captured requests sent again to another gateway, at the times at which they came.

Promise: each request leaves when it left in the capture, divided by the speed, whatever becomes of the others; what is
reported was measured at the client's side of this process.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import aiohttp
import click

from turnwire.capture.format import CapturedTurn
from turnwire.capture.reading import Capture
from turnwire.harness.plan import KEY_VARIABLE

__all__ = ["send_again"]

_PATHS = {
    "messages": "/v1/messages",
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "completions": "/v1/completions",
    "compact": "/v1/responses/compact",
}
_PASSED_ON = frozenset(
    {"content-type", "user-agent", "anthropic-beta", "anthropic-version", "x-claude-code-session-id", "session_id"}
)


async def send_again(capture: Capture, url: str, speed: float, key: str | None = None) -> int:
    """Send every captured request and print how long answers took, then and now; how many failed."""
    turns = [turn for turn in capture.turns if turn.request.framing == "sse" and not turn.memory]
    if not turns:
        raise click.ClickException("The capture holds no request that can be sent by HTTP.")
    began, first = time.monotonic(), turns[0].at
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session:
        sent = [_send(session, url, key, turn, began + (turn.at - first) / speed) for turn in turns]
        answers = await asyncio.gather(*sent)
    failed = Counter(status for status, _, _ in answers if status != 200)
    then = [(turn.answer[0][0], turn.seconds) for turn in turns if turn.answer]
    now = [(begun, whole) for status, begun, whole in answers if status == 200]
    why = ", ".join(f"{count} x {status or 'no answer'}" for status, count in sorted(failed.items()))
    told = f"{failed.total()} failed" + (f": {why}" if why else "")
    click.echo(f"{len(turns)} requests in {time.monotonic() - began:.1f} s, {told}")
    if failed[401] or failed[403]:
        click.echo(f"{url} wants a key: give one with --key or {KEY_VARIABLE}.", err=True)
    for name, rows in (("captured", then), ("replayed", now)):
        if rows:
            firsts, wholes = sorted(row[0] for row in rows), sorted(row[1] for row in rows)
            click.echo(f"{name}: first byte {_spread(firsts)}, whole answer {_spread(wholes)}")
    return failed.total()


def _spread(values: list[float]) -> str:
    return f"p50 {values[len(values) // 2]:.3f} s, p95 {values[min(len(values) * 95 // 100, len(values) - 1)]:.3f} s"


async def _send(
    session: aiohttp.ClientSession, url: str, key: str | None, turn: CapturedTurn, at: float
) -> tuple[int, float, float]:
    await asyncio.sleep(max(at - time.monotonic(), 0))
    headers = {name: value for name, value in turn.request.headers.items() if name in _PASSED_ON}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    path = _PATHS[turn.request.route or turn.api]
    started = time.monotonic()
    begun = 0.0
    try:
        async with session.post(url.rstrip("/") + path, data=turn.request.body.encode(), headers=headers) as answer:
            async for _ in answer.content.iter_any():
                begun = begun or time.monotonic() - started
            return answer.status, begun, time.monotonic() - started
    except (aiohttp.ClientError, TimeoutError):
        return 0, begun, time.monotonic() - started
