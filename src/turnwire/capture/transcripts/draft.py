"""A turn as a harness's own transcript tells it, on its way to being a captured turn.

Promise: nothing is made up. A transcript has neither token ids nor bytes, so a turn has none; it knows when each block
ended, so the first block's time includes the wait for it. The counts are those that the harness was told.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from turnwire.capture.format import (
    CapturedPrompt,
    CapturedRequest,
    CapturedTurn,
    DoneStep,
    EventStep,
    ParsedBlock,
    Step,
)
from turnwire.turns import BlockClosed, BlockDelta, BlockOpened, Event, FinishReason, ToolCallClosed

__all__ = ["Draft", "Usage", "moment"]

_STORY = "Imported from a transcript, which does not have the prompt's tokens."


class Usage(msgspec.Struct, kw_only=True):
    """Tokens, as the harness was told."""

    prompt: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0


def moment(stamp: object) -> float:
    """Unix seconds of an ISO time; 0 for anything else."""
    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except ValueError:
        return 0.0


class Draft:
    """A turn while its lines are read. `call_ids` are those of its calls, in order."""

    def __init__(self, turn_id: str, api: str, model: str, *, at: float, body: dict[str, Any], source: str) -> None:
        self.turn_id = turn_id
        self.api = api
        self.model = model
        self.at = at
        self.body = body
        self.source = source
        self.blocks: list[tuple[float, ParsedBlock]] = []
        self.call_ids: list[str] = []
        self.usage: Usage | None = None
        self.place = 0

    def add(self, at: float, block: ParsedBlock, call_id: str = "") -> None:
        """A block that was over at this time."""
        self.blocks.append((max(at, self.at), block))
        if block.kind == "tool_call":
            self.call_ids.append(call_id)

    def turn(self, *, session: str | None, parent: str | None, agent: str | None, client: str) -> CapturedTurn:
        """The turn as a capture has it."""
        usage = self.usage or Usage()
        seconds = round(max([at for at, _ in self.blocks[-1:]], default=self.at) - self.at, 3)
        finish: FinishReason = "tool_calls" if self.call_ids else "stop"
        done = DoneStep(seconds, finish, usage.prompt, usage.output, usage.cached, None, usage.reasoning)
        turn_class = "subagent" if agent or parent else "main"
        fields = {"session": session, "parent": parent, "agent": agent, "client": client, "turn_class": turn_class}
        return CapturedTurn(
            turn_id=self.turn_id,
            api=self.api,
            model=self.model,
            tenant="default",
            at=self.at,
            created=int(self.at),
            dispatch=False,
            request=CapturedRequest(
                headers={"content-type": "application/json", "user-agent": client},
                body=msgspec.json.encode(self.body).decode(),
            ),
            prompt=CapturedPrompt(ids=[]),
            steps=(*self._steps(), done),
            answer=(),
            output_ids=[],
            call_ids=tuple(self.call_ids),
            summary=self._summary(usage, seconds, finish) | fields,
            finish=finish,
            place=self.place,
            blocks=tuple(block for _, block in self.blocks),
            imported=self.source,
            **fields,  # type: ignore[arg-type] # the fields of the same names
        )

    def _steps(self) -> list[Step]:
        ids = iter(self.call_ids)
        steps: list[Step] = []
        for index, (at, block) in enumerate(self.blocks):
            events: tuple[Event, ...]
            if block.kind == "tool_call":
                call_id = next(ids)
                said = block.arguments if isinstance(block.arguments, str) else _json(block.arguments)
                events = (
                    BlockOpened(index, "tool_call", block.name, call_id),
                    BlockDelta(index, said),
                    ToolCallClosed(index, block.name, said, call_id),
                )
            else:
                events = (BlockOpened(index, block.kind), BlockDelta(index, block.text), BlockClosed(index, block.kind))
            steps.append(EventStep(round(at - self.at, 3), events))
        return steps

    def _summary(self, usage: Usage, seconds: float, finish: str) -> dict[str, Any]:
        """The turn's line of /admin/turns, as far as a transcript knows it."""
        ends = [round(at - self.at, 3) for at, _ in self.blocks]
        return {
            "turn_id": self.turn_id,
            "at": self.at + seconds,
            "api": self.api,
            "model": self.model,
            "tenant": "default",
            "finish": finish,
            "failure": None,
            "prompt_tokens": usage.prompt,
            "cached_tokens": usage.cached,
            "output_tokens": usage.output,
            "reasoning_tokens": usage.reasoning,
            "calls": len(self.call_ids),
            "first_token": None,
            "seconds": seconds,
            "silence": 0.0,
            "prefix": "new",
            "lost": 0,
            "cause": None,
            "notes": [],
            "story": _STORY,
            "spans": [
                {"kind": block.kind, "name": block.name, "start": start, "end": end}
                for start, end, (_, block) in zip([0.0, *ends], ends, self.blocks, strict=False)
            ],
        }


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
