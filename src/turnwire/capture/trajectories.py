"""Captured sessions as trajectories in the Agent Trajectory Interchange Format (ATIF), version 1.4.

Promise: one trajectory for each agent of each session, with the system text, what users said, every answer with its
thoughts and calls, what tools answered, token counts and the exact ids. A request that cannot be decoded on its own
contributes its answer alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from turnwire.capture.format import MASKED, CapturedTurn, TokenStep
from turnwire.protocols import anthropic, chat, responses
from turnwire.protocols.limits import Limits
from turnwire.protocols.wire import TurnFailure
from turnwire.turns import Message, TextBlock, ToolResultBlock

__all__ = ["VERSION", "request_messages", "trajectories"]

VERSION = "ATIF-v1.4"
_SIDE = frozenset({"title", "auxiliary", "background"})


def trajectories(turns: Iterable[CapturedTurn]) -> list[dict[str, Any]]:
    """The trajectories of captured turns, which come oldest first. Side requests of a harness are not part of one."""
    lines: dict[tuple[str, str, str], _Trajectory] = {}
    for turn in turns:
        if turn.turn_class not in _SIDE:
            name = (turn.tenant, turn.session or turn.turn_id, turn.agent or "")
            lines.setdefault(name, _Trajectory(turn)).add(turn)
    return [line.document() for line in lines.values()]


def request_messages(turn: CapturedTurn) -> tuple[Message, ...]:
    """The conversation of a request, as far as it tells it itself."""
    body, headers = turn.request.body.encode(), turn.request.headers
    try:
        if turn.api == "messages":
            return anthropic.decode(body, headers).conversation.messages
        if turn.api == "chat":
            return chat.decode(body, headers).conversation.messages
        if turn.api == "responses":
            request = responses.read_request(body, Limits())
            return responses.decode_request(request, headers).conversation.messages
    except TurnFailure:
        pass
    return ()


class _Trajectory:
    """One agent's steps so far."""

    def __init__(self, first: CapturedTurn) -> None:
        self._first = first
        self._turns: list[CapturedTurn] = []
        self._steps: list[dict[str, Any]] = []
        self._seen = 0

    def add(self, turn: CapturedTurn) -> None:
        """What is new in the request, then the answer."""
        messages = request_messages(turn)
        for message in messages[self._seen :]:
            if message.role != "assistant":
                self._heard(message, turn)
        # The answer will come back as one message of the next request.
        self._seen = len(messages) + 1 if messages else self._seen
        self._turns.append(turn)
        self._answered(turn)

    def _heard(self, message: Message, turn: CapturedTurn) -> None:
        results = [block for block in message.blocks if isinstance(block, ToolResultBlock)]
        if results and self._steps and self._steps[-1]["source"] == "agent":
            observation = self._steps[-1].setdefault("observation", {"results": []})
            observation["results"] += [
                {"source_call_id": block.call_id, "content": _text(block.content)} for block in results
            ]
        said = _text(message.blocks)
        if said:
            source = "user" if message.role == "user" else "system"
            self._step(source, turn.at, said)

    def _answered(self, turn: CapturedTurn) -> None:
        text = "".join(block.text for block in turn.blocks if block.kind == "text")
        thoughts = "\n\n".join(block.text for block in turn.blocks if block.kind == "reasoning")
        calls = [block for block in turn.blocks if block.kind == "tool_call"]
        step = self._step("agent", turn.at + turn.seconds, text)
        step["model_name"] = turn.model
        if thoughts:
            step["reasoning_content"] = thoughts
        if calls:
            step["tool_calls"] = [
                {
                    "tool_call_id": call_id,
                    "function_name": block.name,
                    "arguments": block.arguments if isinstance(block.arguments, dict) else {"input": block.arguments},
                }
                for call_id, block in zip(turn.call_ids, calls, strict=False)
            ]
        step["metrics"] = _metrics(turn)
        step["extra"] = {"turn_id": turn.turn_id, "finish": turn.finish, "prefix": turn.verdict.get("state")}

    def _step(self, source: str, at: float, message: str) -> dict[str, Any]:
        step: dict[str, Any] = {
            "step_id": len(self._steps) + 1,
            "timestamp": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
            "source": source,
            "message": message,
        }
        self._steps.append(step)
        return step

    def document(self) -> dict[str, Any]:
        """The trajectory."""
        first = self._first
        name, _, version = (first.client or "unknown/").partition("/")
        counted = [turn.summary for turn in self._turns]
        return {
            "schema_version": VERSION,
            "session_id": first.session or first.turn_id,
            "agent": {
                "name": name,
                "version": version or "unknown",
                "model_name": first.model,
                "extra": {"agent_id": first.agent, "parent": first.parent},
            },
            "steps": self._steps,
            "final_metrics": {
                "total_prompt_tokens": sum(summary.get("prompt_tokens", 0) for summary in counted),
                "total_completion_tokens": sum(summary.get("output_tokens", 0) for summary in counted),
                "total_cached_tokens": sum(summary.get("cached_tokens", 0) for summary in counted),
                "total_steps": len(self._steps),
            },
        }


def _metrics(turn: CapturedTurn) -> dict[str, Any]:
    steps = [step for step in turn.steps if isinstance(step, TokenStep)]
    scores = [value for step in steps for _, value, _ in step.logprobs]
    metrics: dict[str, Any] = {
        "prompt_tokens": turn.summary.get("prompt_tokens"),
        "completion_tokens": turn.summary.get("output_tokens"),
        "cached_tokens": turn.summary.get("cached_tokens"),
    }
    if turn.prompt.ids and MASKED not in turn.prompt.ids and MASKED not in turn.output_ids:
        metrics |= {"prompt_token_ids": turn.prompt.ids, "completion_token_ids": turn.output_ids}
    if scores and len(scores) == len(turn.output_ids):
        metrics["logprobs"] = scores
    return {name: value for name, value in metrics.items() if value is not None}


def _text(blocks: Sequence[object]) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))
