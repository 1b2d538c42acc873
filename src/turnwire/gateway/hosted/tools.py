"""The hosted tools of a gateway: who may use which, and what running one gives.

Promise: a call is bounded in time, bytes and number per minute and key; whatever goes wrong becomes one of the vendors'
error codes, never an invention. The servers' own words about a failure go to the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.gateway.door.keys import Key
from turnwire.gateway.hosted.findings import code_run, cut, findings
from turnwire.gateway.hosted.mcp_server import McpAnswer, McpFailure, McpServer, McpTimeout
from turnwire.gateway.settings import ToolSettings
from turnwire.protocols.hosted.answers import within
from turnwire.protocols.hosted.offer import BASH, CODE, FILES, NOTHING, OWN, HostedOffer
from turnwire.turns import Finding, HostedAnswer, HostedCalled, Tool
from turnwire.unreadable import UNREADABLE

__all__ = ["HostedTools"]

log = logging.getLogger("turnwire.hosted")

_WORDS: Mapping[str, tuple[str, ...]] = {
    CODE.name: ("python", "code", "execute"),
    BASH.name: ("bash", "shell", "command"),
    FILES.name: ("search",),
}
"""By which words in its name a server's tool is found for what has another name there."""

_CODE = frozenset({CODE.name, BASH.name})
_MOST_QUERY = 4_096
_MOST_CODE = 256 * 1024
_LISTED_S = 60.0
"""How long the list of a server's tools is taken for current."""


class HostedTools:
    """Every `[tools.NAME]` of the settings. A name that is not a vendor's tool is the label of an MCP server."""

    def __init__(self, settings: Mapping[str, ToolSettings]) -> None:
        self._settings = settings
        self._servers = {name: McpServer(name, tool) for name, tool in settings.items()}
        self._listed: dict[str, tuple[float, tuple[Tool, ...]]] = {}
        self._recent: dict[tuple[str, str], deque[float]] = {}

    @property
    def most_rounds(self) -> int:
        """How many generations one answer may have."""
        return max((tool.max_rounds for tool in self._settings.values()), default=1)

    async def offer(self, key: Key) -> HostedOffer:
        """What may be offered to a request of this key."""
        open_to = [name for name, tool in self._settings.items() if not tool.keys or key.name in tool.keys]
        if not open_to:
            return NOTHING
        servers = {name: tools for name in open_to if name not in OWN and (tools := await self._tools(name))}
        stores = self._settings[FILES.name].stores if FILES.name in open_to else ()
        return HostedOffer(frozenset(name for name in open_to if name in OWN), servers, frozenset(stores))

    async def run(self, called: HostedCalled, key: str) -> HostedAnswer:
        """The answer to a call of the named API key; an error code where there is none."""
        name = called.use.server
        settings = self._settings.get(name)
        if settings is None:
            return HostedAnswer(error="unavailable")
        arguments = _object(called.arguments)
        if arguments is None:
            return HostedAnswer(error="invalid_tool_input")
        if not self._admitted(name, key, settings.calls_per_minute):
            return HostedAnswer(error="too_many_requests")
        try:
            if called.use.kind == "mcp":
                return self._plain(await self._servers[name].call(called.use.tool, arguments), settings)
            return await self._vendors(called, arguments, settings)
        except McpFailure as failure:
            log.warning("hosted tool %s: %s", name, failure)
            late = isinstance(failure, McpTimeout) and name in _CODE
            return HostedAnswer(error="execution_time_exceeded" if late else "unavailable")

    async def close(self) -> None:
        """Let every server go."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    # ------------------------------------------------------------------------------------------------- the vendors' own

    async def _vendors(self, called: HostedCalled, arguments: dict[str, Any], settings: ToolSettings) -> HostedAnswer:
        kind = called.use.kind
        wanted = arguments.get(OWN[kind])
        if not isinstance(wanted, str) or not wanted or len(wanted) > _MOST_CODE:
            return HostedAnswer(error="invalid_tool_input")
        if kind not in _CODE and len(wanted) > _MOST_QUERY:
            return HostedAnswer(error="query_too_long")
        if kind == "web_fetch" and not within(called.use, wanted):
            return HostedAnswer(error="url_not_accessible")
        tool, argument = await self._remote(called.use.server, OWN[kind], settings)
        given: dict[str, Any] = {argument: wanted}
        if "vector_store_ids" in _arguments(tool):
            given["vector_store_ids"] = list(called.use.stores)
        answer = await self._servers[called.use.server].call(tool.name, given)
        if kind in _CODE:
            return HostedAnswer(run=code_run(answer.structured, answer.texts, answer.failed, settings.max_bytes))
        if answer.failed:
            log.warning("hosted tool %s failed: %s", called.use.server, " ".join(answer.texts)[:500])
            return HostedAnswer(error="url_not_accessible" if kind == "web_fetch" else "unavailable")
        if kind == "web_fetch":
            text = cut("\n\n".join(answer.texts), settings.max_bytes)
            return HostedAnswer(findings=(Finding(title="", url=wanted, text=text),))
        found = findings(answer.structured, answer.texts, settings.max_bytes)
        if kind == "file_search":
            return HostedAnswer(findings=found[: called.use.results])
        return HostedAnswer(findings=tuple(one for one in found if not one.url or within(called.use, one.url)))

    async def _remote(self, name: str, argument: str, settings: ToolSettings) -> tuple[Tool, str]:
        """The server's tool that does the work, and the name of its one argument."""
        tools = await self._tools(name, fresh=True)
        chosen = [tool for tool in tools if tool.name == (settings.tool or name)]
        if not chosen and settings.tool is None:
            chosen = list(tools) if len(tools) == 1 else _alike(tools, name)
        if not chosen:
            listed = ", ".join(tool.name for tool in tools) or "none"
            raise McpFailure(f"no tool of the server fits; it has: {listed}. Name one with `tool`")
        names = _arguments(chosen[0])
        required = chosen[0].schema.get("required")
        first = required[0] if isinstance(required, list) and required else names[0] if names else argument
        return chosen[0], argument if argument in names or not isinstance(first, str) else first

    # ------------------------------------------------------------------------------------------------------ any server

    @staticmethod
    def _plain(answer: McpAnswer, settings: ToolSettings) -> HostedAnswer:
        texts = list(answer.texts)
        if not texts and answer.structured is not None:
            texts = [msgspec.json.encode(answer.structured).decode()]
        text = cut("\n\n".join(texts), settings.max_bytes)
        return HostedAnswer(text=text, error="tool_error" if answer.failed else "")

    async def _tools(self, name: str, *, fresh: bool = False) -> tuple[Tool, ...]:
        known = self._listed.get(name)
        if known is not None and time.monotonic() - known[0] < _LISTED_S:
            return known[1]
        try:
            tools = await self._servers[name].tools()
        except McpFailure as failure:
            if fresh:
                raise
            log.warning("hosted tools of %s: %s", name, failure)
            # A server that was there a minute ago keeps its place in the prompt; a call will say that it is gone.
            tools = known[1] if known is not None else ()
        self._listed[name] = (time.monotonic(), tools)
        return tools

    def _admitted(self, name: str, key: str, most: int) -> bool:
        """Whether one more call is within the last minute's number."""
        now = time.monotonic()
        recent = self._recent.setdefault((name, key), deque())
        while recent and now - recent[0] > 60:
            recent.popleft()
        if len(recent) >= most:
            return False
        recent.append(now)
        return True


def _alike(tools: tuple[Tool, ...], name: str) -> list[Tool]:
    """The first tool whose name says what is wanted."""
    words = _WORDS.get(name, (name.removeprefix("web_"),))
    return [tool for word in words for tool in tools if word in tool.name.lower()][:1]


def _arguments(tool: Tool) -> list[str]:
    properties = tool.schema.get("properties")
    return list(properties) if isinstance(properties, dict) else []


def _object(arguments: str) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(arguments or "{}")
    except UNREADABLE:
        return None
    return value if isinstance(value, dict) else None
