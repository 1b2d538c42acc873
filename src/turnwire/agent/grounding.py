"""Answers only from what was found: an answer is checked against the tools' results before anybody sees it.

Promise: an answer that the results do not support, or that came without any, is replaced by the refusal. The check is a
question to a model; it is as good as that model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwire.agent.endpoint import Endpoint

__all__ = ["Grounding"]

_SYSTEM = "You check answers against sources. You reply with one word: yes or no."
_QUESTION = (
    "Sources:\n{sources}\n\nQuestion: {question}\n\nAnswer to check: {answer}\n\n"
    "Is every statement of fact in that answer supported by the sources? Reply with yes or no."
)
_MOST_CHARS = 24_000


class Grounding:
    """The check. `refusal` is what is said instead of an unsupported answer; `model` asks another model than the
    session's own."""

    def __init__(
        self, refusal: str = "I do not know: nothing that I found says so.", *, model: str | None = None
    ) -> None:
        self.refusal = refusal
        self.model = model

    async def supports(
        self, endpoint: Endpoint, model: str, *, question: str, answer: str, messages: Sequence[dict[str, Any]]
    ) -> bool:
        """Whether the tool results among `messages` support the answer."""
        sources = [
            message["content"]
            for message in messages
            if message["role"] == "tool" and not message["content"].startswith("Error:")
        ]
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


def _says_yes(answer: dict[str, Any]) -> bool:
    choices = answer.get("choices")
    message = choices[0].get("message") if isinstance(choices, list) and choices else None
    text = message.get("content") if isinstance(message, dict) else None
    return isinstance(text, str) and text.strip().lower().startswith("yes")
