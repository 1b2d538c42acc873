"""Answers only from what was found: what the model says is checked against the tools' results before anybody sees it.

Promise: text that the results do not support is not shown, nor anything after it; the refusal is said instead. An
answer is checked paragraph by paragraph while the model goes on writing, so it streams, one check behind. An answer
without any result is refused without a check. The check is a question to a model; it is as good as that model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from turnwire.agent.endpoint import Endpoint

__all__ = ["Grounding", "GuardedText"]

_SYSTEM = "You check answers against sources. You reply with one word: yes or no."
_QUESTION = (
    "Sources:\n{sources}\n\nQuestion: {question}\n\nAnswer to check: {answer}\n\n"
    "Is every statement of fact in that answer supported by the sources? Reply with yes or no."
)
_MOST_CHARS = 24_000
_BREAK = "\n\n"


class Grounding:
    """The check. `refusal` is what is said instead of unsupported text; `model` asks another model than the session's
    own. With `whole`, an answer is held back until it is over and then checked once: fewer questions, and nothing is
    shown of an answer that is wrong at its end."""

    def __init__(
        self,
        refusal: str = "I do not know: nothing that I found says so.",
        *,
        model: str | None = None,
        whole: bool = False,
    ) -> None:
        self.refusal = refusal
        self.model = model
        self.whole = whole

    def guard(
        self,
        endpoint: Endpoint,
        model: str,
        *,
        question: str,
        messages: Sequence[dict[str, Any]],
        show: Callable[[str], None],
    ) -> GuardedText:
        """A check of text that is still being written; `show` gets what passed."""
        found = list(messages)

        async def check(text: str) -> bool:
            return await self.supports(endpoint, model, question=question, answer=text, messages=found)

        return GuardedText(check, show, whole=self.whole or not _sources(found))

    async def supports(
        self, endpoint: Endpoint, model: str, *, question: str, answer: str, messages: Sequence[dict[str, Any]]
    ) -> bool:
        """Whether the tool results among `messages` support the answer."""
        sources = _sources(messages)
        if not sources or not answer.strip() or answer.strip() == self.refusal:
            return False
        found = "\n".join(f"- {source}" for source in sources)[-_MOST_CHARS:]
        asked = _QUESTION.format(sources=found, question=question, answer=answer)
        verdict = await endpoint.complete(
            {
                "model": self.model or model,
                "messages": [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": asked}],
                "temperature": 0,
                "max_tokens": 512,
            }
        )
        return _says_yes(verdict)


class GuardedText:
    """Text on its way to a reader: each paragraph waits for its check, and for those before it. `shown` is what passed;
    after the first paragraph that did not, nothing does."""

    def __init__(
        self, check: Callable[[str], Awaitable[bool]], show: Callable[[str], None], *, whole: bool = False
    ) -> None:
        self._check = check
        self._show = show
        self._whole = whole
        self._rest = ""
        self._waiting: asyncio.Queue[str | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self.shown = ""
        self.supported = True

    def feed(self, text: str) -> None:
        """More of what the model says."""
        self._rest += text
        if self._whole:
            return
        *ready, self._rest = self._rest.split(_BREAK)
        for paragraph in ready:
            self._put(paragraph + _BREAK)

    async def end(self, *, last: bool) -> None:
        """Wait for every check. With `last`, what was written last is checked and shown, too."""
        if last and self._rest.strip():
            self._put(self._rest)
        if self._task is not None:
            self._waiting.put_nowait(None)
            await self._task

    def stop(self) -> None:
        """No more checks."""
        if self._task is not None:
            self._task.cancel()

    def _put(self, text: str) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        self._waiting.put_nowait(text)

    async def _run(self) -> None:
        while (text := await self._waiting.get()) is not None:
            if self.supported and text.strip():
                self.supported = await self._check(text.strip())
            if self.supported:
                self.shown += text
                self._show(text)


def _sources(messages: Sequence[dict[str, Any]]) -> list[str]:
    """What tools answered, errors left out."""
    return [
        message["content"]
        for message in messages
        if message["role"] == "tool" and not message["content"].startswith("Error:")
    ]


def _says_yes(answer: dict[str, Any]) -> bool:
    choices = answer.get("choices")
    message = choices[0].get("message") if isinstance(choices, list) and choices else None
    text = message.get("content") if isinstance(message, dict) else None
    return isinstance(text, str) and text.strip().lower().startswith("yes")
