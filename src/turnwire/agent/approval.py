"""Whether a tool may run: a function of yours is asked before each call, and answers for one call or for all of them.

Promise: without an answer nothing runs. One question is open at a time, in the order of the calls; an answer for all
calls of a tool is remembered for the session, so that tool is not asked about again. Time spent on a question is not
the tool's time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias, cast, get_args

import msgspec

from turnwire.agent.threads import in_thread

__all__ = ["Approval", "Approvals", "ApproveTool", "ToolRequest"]

Approval: TypeAlias = Literal["once", "always", "no", "never"]
"""`once` and `no` are about this call; `always` and `never` about every call of this tool in this session."""

_LASTING = {"always": True, "never": False}
_REFUSED = {
    "no": "Error: the user did not allow this call, so it was not run. Do not repeat it unless the user asks for it.",
    "never": "Error: the user does not allow this tool, so it was not run. Go on without it.",
}


class ToolRequest(msgspec.Struct, frozen=True):
    """A call that waits for permission. `arguments` is the JSON text as the model wrote it."""

    call_id: str
    name: str
    arguments: str


ApproveTool: TypeAlias = Callable[[ToolRequest], Approval | Awaitable[Approval]]
"""Is asked before a tool runs. An async function is awaited; any other runs in a thread and may block."""


class Approvals:
    """Asks `approve`, and remembers what it said for good. Without `approve` every call may run."""

    def __init__(self, approve: ApproveTool | None) -> None:
        self._approve = approve
        self._lasting: dict[str, bool] = {}
        self._asking = asyncio.Lock()

    @property
    def asks(self) -> bool:
        """Whether anybody is asked."""
        return self._approve is not None

    @property
    def lasting(self) -> dict[str, bool]:
        """The tools that were answered for all their calls: whether each may run."""
        return dict(self._lasting)

    async def refusal(self, request: ToolRequest) -> str | None:
        """None if the call may run; otherwise what the model reads in place of its result."""
        if self._approve is None:
            return None
        async with self._asking:
            if (known := self._lasting.get(request.name)) is not None:
                return None if known else _REFUSED["never"]
            try:
                answer = await self._answer(request)
            except Exception as error:
                return f"Error: not run, because asking for permission failed ({type(error).__name__}: {error})."
            if answer in _LASTING:
                self._lasting[request.name] = _LASTING[answer]
            return _REFUSED.get(answer)

    async def _answer(self, request: ToolRequest) -> Approval:
        approve = self._approve
        assert approve is not None
        answer: Any = approve(request) if inspect.iscoroutinefunction(approve) else await in_thread(approve, request)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer not in get_args(Approval):
            raise ValueError(f"the answer must be one of {', '.join(get_args(Approval))}, not {answer!r}")
        return cast("Approval", answer)
