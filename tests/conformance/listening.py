"""A gateway of ours whose scripted engine plays the scenes and tells what it read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.gateway.conftest import running
from turnwire.conformance.scenes import SCENES, lines, spoken
from turnwire.engines.interface import GenerateRequest, Generation, Receiver
from turnwire.engines.scripted.engine import ScriptedEngine
from turnwire.gateway.settings import Settings
from turnwire.prompts.tokenizers.load import load_tokenizer


class Listening:
    """What the rules ask of a stand-in, answered by this process's engine, which knows scenes by their questions."""

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []
        self.aborted = 0
        self._tokenizer = load_tokenizer(None)

    def play(self, scene: str, turn: int) -> None:
        pass

    def tokens(self, scene: str, turn: int) -> Sequence[int]:
        return self._tokenizer.encode(spoken(SCENES[scene].turns[turn], opened=True))

    def heard(self) -> list[list[int]]:
        return self.prompts

    def left(self) -> int:
        return self.aborted

    def text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids))


@asynccontextmanager
async def listening_gateway(folder: Path) -> AsyncIterator[tuple[str, Listening]]:
    """The address of a gateway, and what its engine hears."""
    stand_in = Listening()
    played = ScriptedEngine.submit

    def submit(self: ScriptedEngine, request: GenerateRequest, receiver: Receiver) -> Generation:
        stand_in.prompts.append(list(request.prompt_ids))
        generation = played(self, request, receiver)
        stop = generation.abort

        def abort() -> None:
            stand_in.aborted += 1
            stop()

        generation.abort = abort  # type: ignore[method-assign]
        return generation

    made = [json.loads(line) for line in lines().splitlines()]
    for line in made:
        if "delay_ms" in line:
            line["delay_ms"] = 1.5
    script = folder / "scenes.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in made))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptedEngine, "submit", submit)
        settings = Settings(engine=f"scripted:{script}", model="test-model", dialect="hermes")
        async with running(settings) as client:
            yield client.base, stand_in
