"""The calls of one step while they run: side by side, started when they are known, answered in call order.

Promise: every call gets exactly one result, whatever becomes of its tool. A call that could not run anyway (no such
tool, arguments that do not fit) is not asked about; any other runs only with permission.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from turnwire.agent.approval import Approvals, ToolRequest
from turnwire.agent.events import AgentEvent, ToolFinished, ToolRefused, ToolStarted
from turnwire.agent.stitching import Call
from turnwire.agent.tools import Tool, ToolResult

__all__ = ["RunningCalls"]

_STOPPED = "Error: the user cancelled this call."
_NOT_RUN = "Error: not run, because the limit of steps is reached. Answer with what you know."


class RunningCalls:
    """`seconds` bounds each call, `places` how many run at a time."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        *,
        seconds: float,
        places: asyncio.Semaphore,
        approvals: Approvals,
        emit: Callable[[AgentEvent], None],
    ) -> None:
        self._tools = tools
        self._seconds = seconds
        self._places = places
        self._approvals = approvals
        self._emit = emit
        self._tasks: dict[int, tuple[Call, asyncio.Task[ToolResult]]] = {}

    def start(self, call: Call, *, early: bool) -> None:
        """Run a call now, or as soon as there is a place."""
        self._tasks[call.index] = (call, asyncio.create_task(self._run(call, early)))

    async def results(self) -> list[dict[str, Any]]:
        """The results as messages, in call order, once all are there."""
        await asyncio.gather(*(task for _, task in self._tasks.values()))
        return self._messages(_STOPPED)

    async def stop(self) -> list[dict[str, Any]]:
        """End what still runs; what is there by now, and for the rest that it was cancelled."""
        tasks = [task for _, task in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return self._messages(_STOPPED)

    @staticmethod
    def not_run(calls: list[Call]) -> list[dict[str, Any]]:
        """Results for calls that came after the last step."""
        return [_message(call, _NOT_RUN) for call in calls]

    def _messages(self, stopped: str) -> list[dict[str, Any]]:
        return [
            _message(call, stopped if task.cancelled() else task.result().content)
            for _, (call, task) in sorted(self._tasks.items())
        ]

    async def _run(self, call: Call, early: bool) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            result: ToolResult | None = ToolResult(f"Error: there is no tool {call.name!r}. Tools: {known}.", True)
        else:
            result = tool.unfit(call.arguments)
        if result is None:
            refusal = await self._approvals.refusal(ToolRequest(call.id, call.name, call.arguments))
            if refusal is not None:
                self._emit(ToolRefused(call_id=call.id, name=call.name, arguments=call.arguments, content=refusal))
                return ToolResult(refusal, True)
        async with self._places:
            self._emit(ToolStarted(call_id=call.id, name=call.name, arguments=call.arguments, early=early))
            begun = time.monotonic()
            if tool is not None and result is None:
                result = await tool.call(call.arguments, self._seconds)
            assert result is not None
            self._emit(
                ToolFinished(
                    call_id=call.id,
                    name=call.name,
                    content=result.content,
                    failed=result.failed,
                    seconds=time.monotonic() - begun,
                )
            )
            return result


def _message(call: Call, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": content}
