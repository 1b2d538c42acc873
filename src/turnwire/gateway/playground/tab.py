"""One browser tab: an agent of its own, and what the person says to it.

Promise: the first message brings the key, where the gateway has keys. One turn runs at a time; cancelling it stops the
engine; what is sent is the agent's own events and three types more (`ready`, `approval`, `failed`), each one JSON text.
With facts, the agent may search them, and says only what they support. A tab that leaves takes its agent with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any, Literal

import msgspec
from starlette.types import ASGIApp, Message, Receive, Send

from turnwire.agent import Approval, AsyncChatSession, EndpointError, Grounding, Library, Tool, ToolRequest
from turnwire.gateway.playground.inside import InsideEndpoint
from turnwire.gateway.playground.tools import TOOLS
from turnwire.unreadable import UNREADABLE

__all__ = ["Tab"]

_LONGEST = 24 << 20
_MOST_IMAGES = 8
_MOST_FACTS = 1000
_SHORT = msgspec.Meta(max_length=512)
_INSTRUCTIONS = "You are a helpful assistant. Answer in Markdown."


class _Said(msgspec.Struct):
    """What a browser may say."""

    type: Literal["hello", "ask", "retry", "cancel", "clear", "approve", "settings"]
    key: Annotated[str, _SHORT] | None = None
    model: Annotated[str, _SHORT] | None = None
    tools: Literal["ask", "always", "off"] | None = None
    facts: tuple[str, ...] | None = None
    text: str = ""
    images: tuple[str, ...] = ()
    call_id: Annotated[str, _SHORT] = ""
    answer: Approval = "no"


class Tab:
    """See the module's promise. `app` is the whole gateway, door included; `host` is the name it was reached by."""

    def __init__(self, app: ASGIApp, host: str, receive: Receive, send: Send) -> None:
        self._app = app
        self._host = host
        self._receive = receive
        self._send = send
        self._agent: AsyncChatSession | None = None
        self._turn: asyncio.Task[None] | None = None
        self._asked: dict[str, asyncio.Future[Approval]] = {}
        self._question: str | list[dict[str, Any]] = ""
        self._library: Library | None = None
        self._tools: Literal["ask", "always", "off"] = "ask"

    async def run(self) -> None:
        """Listen until the tab is closed."""
        try:
            while (message := await self._receive())["type"] == "websocket.receive":
                await self._heard(message)
        finally:
            await self._stop()
            if self._agent is not None:
                await self._agent.close()

    async def _heard(self, message: Message) -> None:
        data = message.get("text") or message.get("bytes") or ""
        if len(data) > _LONGEST:
            await self._tell({"type": "failed", "message": f"A message may have {_LONGEST >> 20} MiB at most."})
            return
        try:
            said = msgspec.json.decode(data, type=_Said)
            await self._obey(said)
        except UNREADABLE as error:
            await self._tell({"type": "failed", "message": f"This message is not understood: {error}"})
        except EndpointError as error:
            await self._tell({"type": "failed", "message": str(error)})

    async def _obey(self, said: _Said) -> None:
        if said.type == "hello":
            await self._begin(said)
        elif self._agent is None:
            await self._tell({"type": "failed", "message": "Say hello first."})
        elif said.type in ("ask", "retry"):
            await self._ask(self._agent, said)
        elif said.type == "cancel":
            self._agent.cancel()
        elif said.type == "clear":
            await self._stop()
            self._agent.memory.clear()
        elif said.type == "approve":
            answered = self._asked.pop(said.call_id, None)
            if answered is not None and not answered.done():
                answered.set_result(said.answer)
        else:
            self._settings(self._agent, said)

    async def _begin(self, said: _Said) -> None:
        await self._stop()
        headers = {"user-agent": "turnwire-playground/1"} | (
            {"authorization": f"Bearer {said.key}"} if said.key else {}
        )
        agent = AsyncChatSession("http://inside", tools=TOOLS, instructions=_INSTRUCTIONS, approve=self._approve)
        agent.endpoint = InsideEndpoint(self._app, self._host, headers)
        models = await agent.endpoint.models()
        agent.model = models[0] if models else None
        self._agent = agent
        self._settings(agent, said)
        await self._tell({"type": "ready", "models": models, "model": agent.model})

    def _settings(self, agent: AsyncChatSession, said: _Said) -> None:
        if said.model is not None:
            agent.model = said.model
        if said.tools is not None:
            self._tools = said.tools
            agent.approvals = type(agent.approvals)(self._approve if said.tools == "ask" else None)
        if said.facts is not None:
            facts = [fact.strip() for fact in said.facts[:_MOST_FACTS] if fact.strip()]
            self._library = Library("", agent.model or "", facts, endpoint=agent.endpoint) if facts else None
            agent.grounding = Grounding() if facts else None
        offered: list[Any] = list(TOOLS) if self._tools != "off" else []
        if self._library is not None:
            offered.append(self._library.tool("search_facts", "Search the facts that the user gave."))
        agent.tools = {tool.name: tool for tool in map(Tool.of, offered)}

    async def _ask(self, agent: AsyncChatSession, said: _Said) -> None:
        if self._turn is not None and not self._turn.done():
            await self._tell({"type": "failed", "message": "One turn at a time: cancel the running one first."})
            return
        if said.type == "retry":
            if agent.memory.messages:
                agent.memory.forget_last()
        elif said.images:
            pictures = [{"type": "image_url", "image_url": {"url": image}} for image in said.images[:_MOST_IMAGES]]
            self._question = [{"type": "text", "text": said.text}, *pictures]
        else:
            self._question = said.text
        self._turn = asyncio.create_task(self._run(agent, self._question))

    async def _run(self, agent: AsyncChatSession, question: str | list[dict[str, Any]]) -> None:
        try:
            async for event in agent.stream(question):  # type: ignore[arg-type] # parts are content of a message, too
                await self._send({"type": "websocket.send", "text": msgspec.json.encode(event).decode()})
        except EndpointError as error:
            await self._tell({"type": "failed", "message": str(error)})

    async def _approve(self, request: ToolRequest) -> Approval:
        answered: asyncio.Future[Approval] = asyncio.get_running_loop().create_future()
        self._asked[request.call_id] = answered
        await self._tell({"type": "approval", **msgspec.structs.asdict(request)})
        return await answered

    async def _stop(self) -> None:
        if self._turn is not None:
            if self._agent is not None:
                self._agent.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await asyncio.wait({self._turn}, timeout=5)
            self._turn.cancel()
            await asyncio.gather(self._turn, return_exceptions=True)
        self._asked.clear()

    async def _tell(self, message: dict[str, Any]) -> None:
        await self._send({"type": "websocket.send", "text": msgspec.json.encode(message).decode()})
