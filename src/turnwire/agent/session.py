"""A conversation with a model that can use tools: the asynchronous agent.

Promise: tools start when the server says that their call is complete, while the turn still streams; they run side by
side and their results go back in call order. Every turn ends: by an answer, at the step limit, by cancelling, or with
an EndpointError; after each of these the history is one that a server accepts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any

from turnwire.agent.approval import Approvals, ApproveTool
from turnwire.agent.calls import RunningCalls
from turnwire.agent.endpoint import Endpoint, EndpointError
from turnwire.agent.events import (
    AgentEvent,
    Answered,
    Cancelled,
    Ended,
    MemoryTrimmed,
    Refused,
    StepFinished,
    StepLimitReached,
    StepStarted,
    TextDelta,
    Tokens,
)
from turnwire.agent.grounding import Grounding, GuardedText
from turnwire.agent.memory import Memory, chars
from turnwire.agent.stitching import Call, Stitcher, StitchError
from turnwire.agent.tools import Tool

__all__ = ["AsyncChatSession"]

_DISPATCH = {"x-turnwire-dispatch": "1"}
_OUT_OF_STEPS = "I reached the limit of steps before I had an answer. Please ask for something smaller."
_MOST_AT_ONCE = 8


class AsyncChatSession:
    """A conversation with one model. `tools` are Python functions or `Tool`s; `options` are further fields of the
    request (temperature, max_tokens, …); `max_steps` is how often the model may be asked within a turn before it has to
    answer; `grounding` shows of an answer what passed its check; `approve` is asked before each tool runs; without it
    all of them do."""

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        *,
        tools: Iterable[Callable[..., Any] | Tool] = (),
        instructions: str = "",
        memory: Memory | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        max_steps: int = 8,
        tool_timeout: float = 60.0,
        grounding: Grounding | None = None,
        approve: ApproveTool | None = None,
    ) -> None:
        if max_steps < 1:
            raise ValueError("max_steps must be at least 1")
        self.endpoint = Endpoint(base_url, api_key=api_key, headers=headers)
        self.model = model
        self.tools = {tool.name: tool for tool in map(Tool.of, tools)}
        self.instructions = instructions
        self.memory = Memory() if memory is None else memory
        self.options = dict(options or {})
        self.max_steps = max_steps
        self.tool_timeout = tool_timeout
        self.grounding = grounding
        self.approvals = Approvals(approve)
        self.tokens = Tokens()
        """What the whole conversation has cost."""
        self.context_tokens = 0
        """How many tokens the last step's prompt and answer held."""
        self._turn: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsyncChatSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End a running turn and close the connections."""
        if self._turn is not None:
            self._turn.cancel()
            await asyncio.gather(self._turn, return_exceptions=True)
        await self.endpoint.close()

    @property
    def history(self) -> list[dict[str, Any]]:
        """The remembered messages, as they are sent."""
        return self.memory.messages

    def cancel(self) -> None:
        """End the running turn: the server stops generating, tools are cancelled, the stream ends with Cancelled."""
        if self._turn is not None:
            self._turn.cancel()

    async def chat(self, question: str) -> Ended:
        """One turn to its end."""
        ended: Ended | None = None
        async for event in self.stream(question):
            if isinstance(event, Ended):
                ended = event
        assert ended is not None
        return ended

    async def stream(self, question: str) -> AsyncGenerator[AgentEvent, None]:
        """One turn, event by event. Leaving the generator cancels the turn."""
        if self._turn is not None:
            raise RuntimeError("A session has one turn at a time; wait for its end, or cancel it.")
        events: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
        turn = self._turn = asyncio.create_task(_Turn(self, question, events.put_nowait).run())
        turn.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await turn
        finally:
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)
            self._turn = None

    async def served_model(self) -> str:
        """The model's id; the server's first one where none was named."""
        if self.model is None:
            models = await self.endpoint.models()
            if not models:
                raise EndpointError(f"{self.endpoint.base_url} lists no model; name one.")
            self.model = models[0]
        return self.model


class _Turn:
    """One question and all steps to its answer."""

    def __init__(self, session: AsyncChatSession, question: str, emit: Callable[[AgentEvent], None]) -> None:
        self.session = session
        self.question = question
        self.emit = emit
        self.memory = session.memory
        self.steps = 0
        self.tokens = Tokens()
        self.stitcher = Stitcher()
        self.guard: GuardedText | None = None
        self.places = asyncio.Semaphore(_MOST_AT_ONCE)

    async def run(self) -> None:
        self.memory.begin({"role": "user", "content": self.question})
        try:
            await self._steps(await self.session.served_model())
        except asyncio.CancelledError:
            # The turn's own task ends here, in order; whoever cancelled it waits for the event.
            said = self._shown()
            self._leave_valid()
            self.emit(Cancelled(text=said, steps=self.steps, tokens=self.tokens))
        except StitchError as error:
            self._leave_valid()
            raise EndpointError(f"{self.session.endpoint.base_url}: {error}") from None
        except BaseException:
            self._leave_valid()
            raise
        finally:
            self.session.tokens += self.tokens

    async def _steps(self, model: str) -> None:
        session = self.session
        while True:
            self.steps += 1
            final = self.steps > session.max_steps
            calls, results = await self._step(model, final)
            if not calls or final:
                break
            self.memory.add([self._spoken(), *results])
        if final:
            self._limited(calls)
        else:
            self._answered()

    async def _step(self, model: str, final: bool) -> tuple[list[Call], list[dict[str, Any]]]:
        """Ask once. The calls that were made, and their results in order."""
        session, self.stitcher = self.session, Stitcher()
        self.guard = guard = self._guard(model)
        body = self._body(model, final)
        self.emit(StepStarted(step=self.steps))
        calls: list[Call] = []
        running = RunningCalls(
            session.tools,
            seconds=session.tool_timeout,
            places=self.places,
            approvals=session.approvals,
            emit=self.emit,
        )
        over = False
        try:
            async with aclosing(session.endpoint.stream(body, _DISPATCH)) as stream:
                async for name, payload in stream:
                    for part in self.stitcher.feed(name, payload):
                        if isinstance(part, Call):
                            calls.append(part)
                            if not final:
                                running.start(part, early=True)
                                # It begins now, not when the rest of what was just read is worked off.
                                await asyncio.sleep(0)
                        elif guard is not None and isinstance(part, TextDelta):
                            guard.feed(part.text)
                        else:
                            self.emit(part)
            over = True
            late = self.stitcher.end()
            calls += late
            if guard is not None:
                # Before calls a model says what it is about to do; only what it says in the end is an answer.
                await guard.end(last=not calls)
            self._counted(body)
            if final:
                return calls, []
            for call in late:
                running.start(call, early=False)
            return calls, await running.results()
        except BaseException:
            if guard is not None:
                guard.stop()
            stopped = await running.stop()
            if over and calls and len(stopped) == len(calls):
                self.memory.add([self._spoken(), *stopped])
            raise

    def _body(self, model: str, final: bool) -> dict[str, Any]:
        session, memory = self.session, self.memory
        system = [{"role": "system", "content": session.instructions}] if session.instructions else []
        tools = [tool.definition() for tool in session.tools.values()]
        if self.steps == 1 and (gone := memory.trim(memory.tokens([*system, *tools]))):
            self.emit(MemoryTrimmed(turns=gone))
        body: dict[str, Any] = {
            "model": model,
            "messages": [*system, *memory.messages],
            "stream_options": {"include_usage": True},
            **session.options,
        }
        if tools:
            # They stay on offer to the end: a prompt without them would be another prompt.
            body |= {"tools": tools, "tool_choice": "none" if final else "auto"}
        return body

    def _counted(self, body: Mapping[str, Any]) -> None:
        tokens = self.stitcher.tokens
        self.tokens += tokens
        self.session.context_tokens = tokens.prompt + tokens.output
        self.memory.learn(chars([*body["messages"], *body.get("tools", ())]), tokens.prompt)
        self.emit(StepFinished(step=self.steps, finish=self.stitcher.finish, tokens=tokens))

    # ------------------------------------------------------------------------------------------------------- the end

    def _guard(self, model: str) -> GuardedText | None:
        grounding = self.session.grounding
        if grounding is None:
            return None
        return grounding.guard(
            self.session.endpoint,
            model,
            question=self.question,
            messages=self.memory.messages,
            show=lambda text: self.emit(TextDelta(text=text)),
        )

    def _answered(self) -> None:
        text, grounding, guard = self.stitcher.text, self.session.grounding, self.guard
        if grounding is None or guard is None or (guard.supported and guard.shown):
            self.memory.add([self._spoken()])
            self.emit(Answered(text=text, steps=self.steps, tokens=self.tokens))
            return
        self.emit(TextDelta(text=grounding.refusal))
        said = guard.shown + grounding.refusal
        self.memory.add([{"role": "assistant", "content": said}])
        withheld = text[len(guard.shown) :]
        self.emit(Refused(text=said, withheld=withheld, steps=self.steps, tokens=self.tokens))

    def _limited(self, calls: list[Call]) -> None:
        text = self.stitcher.text
        if calls or not text.strip():
            if calls:
                self.memory.add([self._spoken(), *RunningCalls.not_run(calls)])
            text = text if text.strip() else _OUT_OF_STEPS
            self.memory.add([{"role": "assistant", "content": text}])
        else:
            self.memory.add([self._spoken()])
        self.emit(StepLimitReached(text=text, steps=self.steps, tokens=self.tokens))

    def _spoken(self) -> dict[str, Any]:
        """The step as a message; from here on it is no longer unfinished."""
        message, self.stitcher = self.stitcher.message(), Stitcher()
        return message

    def _shown(self) -> str:
        """What of an unfinished step was seen."""
        return self.stitcher.text if self.guard is None else self.guard.shown

    def _leave_valid(self) -> None:
        """An unfinished step keeps only what was seen of it; a turn in which nothing was said or done never was."""
        if text := self._shown():
            self.memory.add([{"role": "assistant", "content": text}])
        elif self.memory.messages[-1]["role"] == "user":
            self.memory.forget_last()
