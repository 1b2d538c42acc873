"""One assistant turn, stitched together from the chunks of a stream.

Promise: sans-IO. Fragments of a call are joined by index; a call is handed out once, when it is known to be complete:
when the server dispatches it, or when its arguments are a whole JSON object and the stream has moved on. What is not
complete by then is handed out at the end, as it is. The message given back for the history holds everything that the
server said, so that a server which can replay a turn exactly gets what it needs for that.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnwire.agent.events import ReasoningDelta, TextDelta, Tokens
from turnwire.unreadable import UNREADABLE

__all__ = ["Call", "StitchError", "Stitcher"]

_MOST_CALLS = 256
_THOUGHTS = ("reasoning_content", "reasoning")


class StitchError(ValueError):
    """The server ended the turn with an error of its own, or without an end."""


class Call(msgspec.Struct, frozen=True):
    """A complete call. `index` is its place among the calls of the turn."""

    index: int
    id: str
    name: str
    arguments: str


class _Parts:
    """A call while its fragments arrive."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.out = False


class Stitcher:
    """Takes the events of one stream. `finish` is the server's own term for how the turn ended; empty until then."""

    def __init__(self) -> None:
        self.finish = ""
        self.tokens = Tokens()
        self._text: list[str] = []
        self._thoughts: dict[str, list[str]] = {}
        self._details: list[Any] = []
        self._calls: dict[int, _Parts] = {}
        self._latest: int | None = None

    def feed(self, name: str, payload: Any) -> list[TextDelta | ReasoningDelta | Call]:
        """What one event brought."""
        if not isinstance(payload, dict):
            return []
        if payload.get("error") is not None:
            error = payload["error"]
            raise StitchError(str(error.get("message") if isinstance(error, dict) else error))
        if name == "tool_call_dispatch":
            return self._dispatched(payload)
        if name:
            return []
        self._count(payload.get("usage"))
        found: list[TextDelta | ReasoningDelta | Call] = []
        for choice in payload.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            # A whole message, from a server that does not stream, reads like one big delta.
            self._delta(choice.get("delta") or choice.get("message") or {}, found)
            if choice.get("finish_reason"):
                self.finish = choice["finish_reason"]
        return found

    def end(self) -> list[Call]:
        """The stream is over: the calls that were not handed out before."""
        if not self.finish:
            raise StitchError("the stream ended before the turn did")
        return [self._handed(index) for index, parts in sorted(self._calls.items()) if not parts.out]

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._text)

    @property
    def called(self) -> bool:
        return bool(self._calls)

    def message(self) -> dict[str, Any]:
        """The turn as a message of the history."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        for name, pieces in self._thoughts.items():
            message[name] = "".join(pieces)
        if self._details:
            message["reasoning_details"] = self._details
        if self._calls:
            message["tool_calls"] = [
                {
                    "id": parts.id or f"call{index}",
                    "type": "function",
                    "function": {"name": parts.name, "arguments": "".join(parts.pieces)},
                }
                for index, parts in sorted(self._calls.items())
            ]
        elif message["content"] is None:
            message["content"] = ""
        return message

    # -------------------------------------------------------------------------------------------------------- chunks

    def _delta(self, delta: dict[str, Any], found: list[TextDelta | ReasoningDelta | Call]) -> None:
        spoken = [name for name in _THOUGHTS if isinstance(delta.get(name), str) and delta[name]]
        for name in spoken:
            self._thoughts.setdefault(name, []).append(delta[name])
        if spoken:
            # A server that says the same thought under both names says it once to the reader.
            self._moved_on(None, found)
            found.append(ReasoningDelta(text=delta[spoken[0]]))
        details = delta.get("reasoning_details")
        if isinstance(details, list):
            self._details += details
        text = delta.get("content")
        if isinstance(text, str) and text:
            self._moved_on(None, found)
            self._text.append(text)
            found.append(TextDelta(text=text))
        for place, fragment in enumerate(delta.get("tool_calls") or ()):
            self._fragment(fragment, place, found)

    def _fragment(self, fragment: dict[str, Any], place: int, found: list[TextDelta | ReasoningDelta | Call]) -> None:
        index = fragment.get("index", place)
        if not isinstance(index, int) or (index not in self._calls and len(self._calls) >= _MOST_CALLS):
            raise StitchError(f"a call with the index {index!r}")
        if index != self._latest:
            self._moved_on(index, found)
            self._latest = index
        parts = self._calls.setdefault(index, _Parts())
        function = fragment.get("function") or {}
        # Id and name come with the first fragment; a server that repeats them means the same call.
        parts.id = parts.id or fragment.get("id") or ""
        parts.name = parts.name or function.get("name") or ""
        arguments = function.get("arguments")
        if arguments and not parts.out:
            parts.pieces.append(arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode())

    def _moved_on(self, index: int | None, found: list[TextDelta | ReasoningDelta | Call]) -> None:
        latest, self._latest = self._latest, index
        parts = self._calls.get(latest) if latest is not None else None
        if latest is not None and parts is not None and not parts.out and _is_whole("".join(parts.pieces)):
            found.append(self._handed(latest))

    def _dispatched(self, payload: dict[str, Any]) -> list[TextDelta | ReasoningDelta | Call]:
        wire = payload.get("tool_call")
        if payload.get("choice_index", 0) != 0 or not isinstance(wire, dict):
            return []
        index = wire.get("index", len(self._calls))
        parts = self._calls.setdefault(index, _Parts())
        if parts.out:
            return []
        function = wire.get("function") or {}
        parts.id = wire.get("id") or parts.id
        parts.name = function.get("name") or parts.name
        parts.pieces = [function.get("arguments") or ""]
        return [self._handed(index)]

    def _handed(self, index: int) -> Call:
        parts = self._calls[index]
        parts.out = True
        return Call(index, parts.id or f"call{index}", parts.name, "".join(parts.pieces))

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            details = usage.get("prompt_tokens_details")
            self.tokens = Tokens(
                prompt=usage.get("prompt_tokens") or 0,
                cached=(details.get("cached_tokens") or 0) if isinstance(details, dict) else 0,
                output=usage.get("completion_tokens") or 0,
            )


def _is_whole(arguments: str) -> bool:
    """Whether the text is one JSON object; nothing that follows could still be part of it."""
    try:
        return isinstance(msgspec.json.decode(arguments), dict)
    except UNREADABLE:
        return False
