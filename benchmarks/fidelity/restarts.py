"""Tool loops over gateways that come and go, on any template: is each turn read again exactly, and is that said truly?

Promise: a pair of turns is judged by the ids that the engine got and gave; a verdict is false where the gateway says of
the turn that it names what those ids contradict.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from tests.gateway.client_habits import HABITS, uneven_tokens, written
from tests.gateway.conftest import Client, running

from benchmarks.fidelity.outcomes import Count
from turnwire.gateway.settings import Settings
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.parsers import detect


class Layout(msgspec.Struct):
    """Which gateway serves each turn, whether they share a store, and whose habits are played. Where nothing is shared,
    those that carry seals."""

    gateways: tuple[int, ...]
    shared: bool
    habits: tuple[str, ...]


SEALED = ("messages", "responses", "responses, verbatim")
LAYOUTS = {
    "restart before each turn, seals alone": Layout((0, 1, 2, 3), False, SEALED),
    "restart before each turn, shared store": Layout((0, 1, 2, 3), True, tuple(HABITS)),
    "A, B, A, B, seals alone": Layout((0, 1, 0, 1), False, SEALED),
    "A, B, A, B, shared store": Layout((0, 1, 0, 1), True, tuple(HABITS)),
}


class Seen(msgspec.Struct):
    """A turn as the engine had it."""

    turn: str
    prompt: list[int]
    output: list[int]


class Asking:
    """A client of one gateway that remembers what it was told of its prefix."""

    def __init__(self, client: Client, session: str) -> None:
        self._client = client
        self._session = session
        self.prefix = ""

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        headers = {"x-session-id": self._session}
        async with self._client.session.post(self._client.base + path, json=body, headers=headers) as answer:
            self.prefix = answer.headers.get("x-turnwire-prefix", "")
            return answer.status, await answer.json(content_type=None)


@contextmanager
def watched() -> Iterator[list[Seen]]:
    """Every turn that finishes in this process meanwhile."""
    seen: list[Seen] = []
    remember = ModelRuntime.remember

    def keep(self: ModelRuntime, turn: Any) -> Any:
        seen.append(Seen(turn.turn_id, list(turn.prompt.ids), list(turn.outcome.output_ids)))
        return remember(self, turn)

    with patch.object(ModelRuntime, "remember", keep):
        yield seen


@asynccontextmanager
async def started(template: Path, lines: Sequence[str], layout: Layout) -> AsyncIterator[list[Client]]:
    """The gateways of a layout."""
    dialect = _dialect(template)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        script = folder / "script.jsonl"
        script.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
        settings = Settings(
            engine=f"scripted:{script}",
            model="test-model",
            dialect=dialect,
            template=str(template),
            seal_key="one key for all of them",
            store=f"sqlite:{folder / 'turns.db'}" if layout.shared else "memory",
        )
        with uneven_tokens():
            count = max(layout.gateways) + 1
            clients = [await stack.enter_async_context(running(settings)) for _ in range(count)]
        yield clients


def _dialect(template: Path) -> str:
    found = detect("", template.read_text(encoding="utf-8")).dialect
    return found.name if found else "plain"


async def played(template: Path, name: str) -> list[Count]:
    """Play every habit of a layout against a template."""
    layout, lines = LAYOUTS[name], written(template)
    counts: list[Count] = []
    async with started(template, lines, layout) as clients:
        for habit in layout.habits:
            count = Count(name, habit)
            counts.append(count)
            with watched() as seen:
                await _loop(template.stem, habit, [clients[number] for number in layout.gateways], seen, count)
    return counts


async def _loop(stem: str, habit: str, clients: Sequence[Client], seen: list[Seen], count: Count) -> None:
    history: list[dict[str, Any]] = []
    looping = False
    for number, client in enumerate(clients):
        asking = Asking(client, f"session of {habit}")
        more = await HABITS[habit](asking, history, f"Go: {habit}.")
        history += more
        if looping:
            _compare(stem, asking.prefix, seen[: number + 1], count)
        looping = "And now?" not in json.dumps(more)


def _compare(stem: str, prefix: str, seen: Sequence[Seen], count: Count) -> None:
    *earlier, now = seen
    count.pairs += 1
    held = _continues(now, earlier[-1])
    count.held += held
    if not held:
        count.broken.append(f"{stem}, turn {len(seen)}: {prefix}")
    state, _, rest = prefix.partition(";")
    if state in ("held", "broken"):
        count.said += 1
        named = next((turn for turn in earlier if f"turn={turn.turn}" in rest), None)
        true = named is not None and _continues(now, named) == (state == "held")
        if not true:
            count.false += 1
            count.broken.append(f"{stem}, turn {len(seen)}: false verdict {prefix}")


def _continues(now: Seen, before: Seen) -> bool:
    whole = [*before.prompt, *before.output]
    return now.prompt[: len(whole)] == whole
