"""One MCP server of the operator's: a command with pipes, or an address.

Promise: it is connected on first use, and again after it was lost; a call ends within its time. Where it cannot be
reached the failure says why, in one sentence.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.gateway.settings import ToolSettings
from turnwire.turns import Tool

__all__ = ["McpAnswer", "McpFailure", "McpServer", "McpTimeout", "mcp_missing"]

_START_S = 15.0


class McpFailure(RuntimeError):
    """The server cannot be used at the moment; the message says why."""


class McpTimeout(McpFailure):
    """The server took longer than a call may take."""


class McpAnswer(msgspec.Struct, frozen=True):
    """What a tool answered."""

    texts: tuple[str, ...] = ()
    structured: Any = None
    failed: bool = False


def mcp_missing() -> str | None:
    """What to install where the package that speaks MCP is missing."""
    try:
        import mcp  # noqa: F401
    except ImportError:
        return "[tools] needs the package that speaks MCP: pip install 'turnwire[mcp]'"
    return None


class McpServer:
    """A connection that lives in a task of its own, as the package wants it."""

    def __init__(self, label: str, settings: ToolSettings, environ: Mapping[str, str] = os.environ) -> None:
        self.label = label
        self._settings = settings
        self._environ = environ
        self._lock = asyncio.Lock()
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def tools(self) -> tuple[Tool, ...]:
        """What the server offers."""
        listed = await self._within(_START_S, lambda client: client.list_tools())
        return tuple(
            Tool(name=tool.name, description=tool.description or "", schema=dict(tool.input_schema or {}))
            for tool in listed.tools
        )

    async def call(self, tool: str, arguments: dict[str, Any]) -> McpAnswer:
        """Run a tool."""
        result = await self._within(self._settings.timeout, lambda client: client.call_tool(tool, arguments))
        texts = tuple(text for part in result.content if isinstance(text := getattr(part, "text", None), str))
        return McpAnswer(texts, result.structured_content, bool(result.is_error))

    async def close(self) -> None:
        """Let the server go."""
        self._client = None
        if self._task is not None:
            self._stop.set()
            with contextlib.suppress(asyncio.CancelledError, TimeoutError, Exception):
                await asyncio.wait_for(self._task, 5)
            self._task = None

    async def _within(self, seconds: float, work: Any) -> Any:
        client = await self._connected()
        try:
            async with asyncio.timeout(seconds):
                return await work(client)
        except TimeoutError:
            raise McpTimeout(f"{self.label} did not answer within {seconds:g} s") from None
        except Exception as error:
            if type(error).__name__ != "MCPError" or self._task is None or self._task.done():
                await self.close()
            raise McpFailure(f"{self.label}: {error}") from None

    async def _connected(self) -> Any:
        async with self._lock:
            if self._client is not None and self._task is not None and not self._task.done():
                return self._client
            self._client, self._stop = None, asyncio.Event()
            started: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._hold(started))
            try:
                async with asyncio.timeout(_START_S):
                    self._client = await asyncio.shield(started)
            except TimeoutError:
                self._task.cancel()
                raise McpFailure(f"{self.label} did not start within {_START_S:g} s") from None
            except Exception as error:
                raise McpFailure(f"{self.label} cannot be reached: {error}") from None
            return self._client

    async def _hold(self, started: asyncio.Future[Any]) -> None:
        """Keep the connection open until it is let go; entered and left by one task."""
        from mcp import Client

        try:
            async with contextlib.AsyncExitStack() as stack:
                transport = await self._transport(stack)
                client = await stack.enter_async_context(Client(transport))
                if not started.done():
                    started.set_result(client)
                await self._stop.wait()
        except BaseException as error:
            if not started.done():
                started.set_exception(_plain(error))
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._client = None

    async def _transport(self, stack: contextlib.AsyncExitStack) -> Any:
        place = self._settings.mcp
        if isinstance(place, str):
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            key = self._environ.get(self._settings.key_env or "", "")
            headers = {"authorization": f"Bearer {key}"} if key else {}
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=self._settings.timeout))
            return streamable_http_client(place, http_client=http)
        from mcp import StdioServerParameters
        from mcp.client.stdio import stdio_client

        command, *arguments = place
        env = {name: self._environ[name] for name in self._settings.env if name in self._environ}
        return stdio_client(StdioServerParameters(command=command, args=arguments, env=env))


def _plain(error: BaseException) -> Exception:
    """The first failure inside a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, Exception) else McpFailure(type(error).__name__)
