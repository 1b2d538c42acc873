"""The same agent for code without an event loop.

Promise: a session runs on a loop of its own in a background thread; leaving a stream, or Ctrl-C inside one, cancels the
turn there. Nothing of asyncio shows.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from turnwire.agent.events import AgentEvent, Ended, Tokens
from turnwire.agent.session import AsyncChatSession

__all__ = ["ChatSession"]

_T = TypeVar("_T")


class ChatSession:
    """See AsyncChatSession; the arguments are the same."""

    def __init__(self, base_url: str, model: str | None = None, **settings: Any) -> None:
        self._session = AsyncChatSession(base_url, model, **settings)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="chat-session")
        self._thread.start()

    def __enter__(self) -> ChatSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End a running turn, close the connections, stop the thread."""
        if self._loop.is_closed():
            return
        self._wait(self._session.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def history(self) -> list[dict[str, Any]]:
        """The remembered messages, as they are sent."""
        return self._session.history

    @property
    def turns(self) -> int:
        """How many turns are remembered."""
        return len(self._session.memory)

    @property
    def tokens(self) -> Tokens:
        """What the whole conversation has cost."""
        return self._session.tokens

    @property
    def context_tokens(self) -> int:
        """How many tokens the last step's prompt and answer held."""
        return self._session.context_tokens

    @property
    def model(self) -> str | None:
        """The model's id; None until the server was asked for its first one. May be set between turns."""
        return self._session.model

    @model.setter
    def model(self, model: str | None) -> None:
        self._session.model = model

    @property
    def instructions(self) -> str:
        """The system prompt: what the model reads before the conversation. May be set between turns."""
        return self._session.instructions

    @instructions.setter
    def instructions(self, instructions: str) -> None:
        self._session.instructions = instructions

    @property
    def tools(self) -> dict[str, str]:
        """The tools on offer: whether each runs when called, `asks` first, `always` or `never`."""
        lasting = self._session.approvals.lasting
        words = {True: "always", False: "never", None: "asks" if self._session.approvals.asks else "always"}
        return {name: words[lasting.get(name)] for name in self._session.tools}

    def served_model(self) -> str:
        """The model's id, asked of the server where none was named."""
        return self._wait(self._session.served_model())

    def models(self) -> list[str]:
        """The ids of the models that are served."""
        return self._wait(self._session.endpoint.models())

    def forget(self) -> None:
        """Begin anew, between turns."""
        self._session.memory.clear()

    def resume(self, messages: list[dict[str, Any]]) -> None:
        """Go on from these messages, between turns."""
        self._session.memory.load(messages)

    def cancel(self) -> None:
        """End the running turn, from any thread."""
        self._loop.call_soon_threadsafe(self._session.cancel)

    def chat(self, question: str) -> Ended:
        """One turn to its end."""
        ended: Ended | None = None
        for event in self.stream(question):
            if isinstance(event, Ended):
                ended = event
        assert ended is not None
        return ended

    def stream(self, question: str) -> Generator[AgentEvent, None, None]:
        """One turn, event by event."""
        events: queue.SimpleQueue[AgentEvent | BaseException | None] = queue.SimpleQueue()

        async def pump() -> None:
            try:
                async for event in self._session.stream(question):
                    events.put(event)
            except BaseException as error:
                events.put(error)
                raise
            events.put(None)

        running = asyncio.run_coroutine_threadsafe(pump(), self._loop)
        try:
            while (event := events.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            if not running.done():
                self.cancel()
                running.exception()

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
