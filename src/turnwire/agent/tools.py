"""Python functions as tools: their schema from the signature, their arguments checked, their failures as text.

Promise: a call never raises. Whatever goes wrong (bad JSON, wrong types, an exception, too much time) becomes a result
that tells the model what to do differently.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import msgspec

from turnwire.agent.schemas import ToolDefinitionError, arguments_type, described, described_parameters, inlined
from turnwire.agent.threads import in_thread
from turnwire.unreadable import UNREADABLE

__all__ = ["Tool", "ToolDefinitionError", "ToolResult", "tool_cancelled"]

_MOST_CHARS = 65_536
_cancelled: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar("cancelled", default=None)


def tool_cancelled() -> bool:
    """Inside a tool: whether its turn was cancelled or its time is up. A function in a thread cannot be stopped from
    outside; a long one should ask this now and then, and return."""
    signal = _cancelled.get()
    return signal is not None and signal.is_set()


class ToolResult(msgspec.Struct, frozen=True):
    """What the model reads after a call."""

    content: str
    failed: bool = False


class Tool:
    """A function the model may call. `name` and `description` are the function's own unless given."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout: float | None = None,
    ) -> None:
        self.function = function
        self.name: str = name or str(getattr(function, "__name__", ""))
        if not self.name or self.name == "<lambda>":
            raise ToolDefinitionError("A tool needs a name: use a named function, or Tool(function, name=...).")
        summary, parameters = described(inspect.getdoc(function) or "")
        self.description = description or summary
        self.timeout = timeout
        self._type = arguments_type(function, self.name, _hints(function))
        self.schema = described_parameters(inlined(msgspec.json.schema(self._type)), parameters)

    @classmethod
    def of(cls, value: Callable[..., Any] | Tool) -> Tool:
        """A tool as it is, or one made of a function."""
        return value if isinstance(value, Tool) else cls(value)

    def definition(self) -> dict[str, Any]:
        """The tool as Chat Completions wants it."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": function}

    def unfit(self, arguments: str) -> ToolResult | None:
        """What the model reads if its argument text cannot be used; None if it can."""
        try:
            self._values(arguments)
        except _BadArguments as problem:
            return ToolResult(f"Error: {problem}", True)
        return None

    async def call(self, arguments: str, seconds: float) -> ToolResult:
        """Run with the model's argument text, within its own time limit or else `seconds`. An async function is
        cancelled with its task; any other runs in a thread of its own, which is left behind if it does not end."""
        try:
            values = self._values(arguments)
        except _BadArguments as problem:
            return ToolResult(f"Error: {problem}", True)
        limit = self.timeout if self.timeout is not None else seconds
        signal = threading.Event()
        timer = asyncio.timeout(limit)
        try:
            async with timer:
                result = await self._run(values, signal)
        except Exception as error:
            if timer.expired():
                return ToolResult(f"Error: {self.name} did not answer within {limit:g} s. Go on without it.", True)
            return ToolResult(f"Error: {self.name} failed: {type(error).__name__}: {error}"[:_MOST_CHARS], True)
        finally:
            signal.set()
        return ToolResult(_content(result))

    async def _run(self, values: Mapping[str, Any], signal: threading.Event) -> Any:
        _cancelled.set(signal)
        if inspect.iscoroutinefunction(self.function):
            return await self.function(**values)
        result = await in_thread(self.function, **values)
        return await result if inspect.isawaitable(result) else result

    def _values(self, arguments: str) -> dict[str, Any]:
        """The arguments in the types that the function wants; what was not sent is left to its own defaults."""
        try:
            sent = msgspec.json.decode(arguments or "{}")
        except UNREADABLE as error:
            raise _BadArguments(f"the arguments are not valid JSON ({error}). {self._wanted()}") from None
        if not isinstance(sent, dict):
            raise _BadArguments(f"the arguments must be one JSON object. {self._wanted()}")
        unknown = [name for name in sent if name not in self.schema.get("properties", {})]
        if unknown:
            raise _BadArguments(f"{self.name} has no parameter {', '.join(map(repr, unknown))}. {self._wanted()}")
        try:
            filled = msgspec.convert(sent, self._type, strict=False)
        except (msgspec.ValidationError, ValueError) as error:
            raise _BadArguments(f"the arguments do not fit: {error}. {self._wanted()}") from None
        return {name: getattr(filled, name) for name in sent}

    def _wanted(self) -> str:
        schema = msgspec.json.encode(self.schema).decode()
        return f"Call {self.name} again with arguments that fit this schema: {schema}"


class _BadArguments(Exception):
    """Why the arguments cannot be used, in words for the model."""


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise ToolDefinitionError(f"The types of {function!r} cannot be read: {error}") from None


def _content(result: Any) -> str:
    if isinstance(result, str):
        text = result
    else:
        text = "null" if result is None else msgspec.json.encode(result, enc_hook=str).decode()
    if len(text) > _MOST_CHARS:
        text = f"{text[:_MOST_CHARS]}\n[cut: {len(text) - _MOST_CHARS} more characters]"
    return text
