"""`turnwire explain`: why a turn took the time it took, and what became of its prefix.

Promise: the same story as the console's, from the same summary; no words of the conversation.
"""

from __future__ import annotations

from datetime import datetime

import click

from turnwire.cli.inspect.operator import gateway_options, last_turns
from turnwire.gateway.telemetry.journal import TurnSummary

__all__ = ["explain", "story"]

_WIDTH = 100
_PARTS = {"queue": "in the queue", "prefill": "reading the prompt", "reasoning": "thinking", "text": "writing text"}


@click.command()
@gateway_options
@click.option("--last", is_flag=True, help="The last turn.  [default]")
@click.option("--session", help="Every turn of a session, oldest first.")
@click.argument("turn", required=False)
def explain(url: str, key: str | None, last: bool, session: str | None, turn: str | None) -> None:
    """Say why TURN (an id, or the answer's request-id) took as long as it did."""
    wanted = turn.removeprefix("req_") if turn is not None else None
    turns = last_turns(url, key, session=session, turn=wanted, limit=1 if session is None else 1000)
    if not turns:
        if wanted is not None:
            raise click.ClickException(f"Turn {wanted} is not remembered; the last ones are at {url}/admin/turns.")
        raise click.ClickException("No turn of this session is remembered." if session else "No turn has ended yet.")
    before: TurnSummary | None = None
    for one in reversed(turns):
        if before is not None:
            waited = one.at - one.seconds - before.at
            tools = f", running {before.calls} tool call{'s' if before.calls > 1 else ''}" if before.calls else ""
            click.echo(f"  ... {_time(max(waited, 0.0))} at the client{tools}\n")
        click.echo(story(one))
        before = one


def story(turn: TurnSummary) -> str:
    """A turn in a few lines."""
    when = datetime.fromtimestamp(turn.at - turn.seconds).strftime("%H:%M:%S")
    where = f" on {turn.worker} ({turn.route})" if turn.worker else ""
    lines = [
        f"turn {turn.turn_id}  {when}  {turn.model}{where}  {turn.client or 'unknown client'}  "
        f"session {turn.session or '-'}",
        f"  {_time(turn.seconds)} in all, ended by {turn.finish}"
        + (f" ({turn.failure})" if turn.failure else "")
        + (f", {turn.speed:.1f} tokens a second" if turn.speed is not None else ""),
    ]
    for span in turn.spans:
        what = _PARTS.get(span.kind, f"calling {span.name}" if span.name else span.kind)
        lines.append(f"  {_time(span.start):>9}  {_time(span.end - span.start):>9}  {what}")
    uncached = turn.prompt_tokens - turn.cached_tokens
    lines.append(
        f"  prompt {turn.prompt_tokens:,} tokens: {turn.cached_tokens:,} cached, {uncached:,} read"
        + (f" ({turn.lost:,} of them again)" if turn.lost else "")
        + f"; output {turn.output_tokens:,} ({turn.reasoning_tokens:,} thinking), "
        f"{turn.calls} call{'' if turn.calls == 1 else 's'}"
    )
    told = turn.story[:1].upper() + turn.story[1:] + (f" [compared with {turn.compared}]" if turn.compared else "")
    lines.append(click.wrap_text(told, _WIDTH, "  ", "  "))
    if turn.notes:
        lines.append(f"  notes: {', '.join(turn.notes)}")
    return "\n".join(lines) + "\n"


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
