"""The answers to a Completions request, streamed or whole, as they are gathered from several generations.

Promise: text leaves as it is generated; the last generation to end closes the answer with the usage of all of them, in
which each prompt counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from turnwire.protocols.chat.errors import error_object
from turnwire.protocols.chat.vocabulary import ending, fingerprint, usage_object
from turnwire.protocols.completions.request import Asked
from turnwire.protocols.framing import SSE, Framing
from turnwire.protocols.wire import TurnFacts, TurnFailure
from turnwire.turns import BlockDelta, Event, Finished, TokensScored, TurnReport, Usage

__all__ = ["DocumentEncoder", "SharedAnswer", "StreamEncoder"]

_encode = msgspec.json.Encoder().encode


class SharedAnswer:
    """One request's answer while its generations run side by side."""

    def __init__(self, facts: TurnFacts, asked: Asked) -> None:
        self.asked = asked
        self.common: dict[str, Any] = {
            "id": f"cmpl-{facts.turn_id}",
            "object": "text_completion",
            "created": facts.created,
            "model": facts.model,
            "system_fingerprint": fingerprint(facts.model),
        }
        self.annotations = facts.annotations
        self.choices: dict[int, dict[str, Any]] = {}
        self.usage = Usage(0)
        self._running = len(asked.prompts) * asked.choices

    def end(self, index: int, usage: Usage) -> bool:
        """One generation is over; whether it was the last."""
        self._running -= 1
        first = index % self.asked.choices == 0
        self.usage = Usage(
            self.usage.prompt + (usage.prompt if first else 0),
            self.usage.cached + (usage.cached if first else 0),
            self.usage.output + usage.output,
        )
        return self._running == 0


class _Scores:
    """Log probabilities in the API's parallel lists; offsets count characters of the answer's text."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def object(self, events: Sequence[TokensScored]) -> dict[str, Any]:
        lists: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for event in events:
            for token, logprob, top in event.tokens:
                lists["tokens"].append(token)
                lists["token_logprobs"].append(logprob)
                lists["top_logprobs"].append(dict(top))
                lists["text_offset"].append(self._offset)
                self._offset += len(token)
        return lists


class StreamEncoder:
    """See wire.Encoder. `index` is this generation's place among the answers; `prompt` its text, for `echo`."""

    media_type = "text/event-stream"
    streams = True
    carried = False

    def __init__(self, shared: SharedAnswer, index: int, prompt: str, *, framing: Framing = SSE) -> None:
        self._framing = framing
        self._shared = shared
        self._index = index
        self._echoed = prompt if shared.asked.echo else ""
        self._scores = _Scores(len(self._echoed))
        self._usage = Usage(0)
        self._report: dict[str, Any] = {}

    def start(self, usage: Usage) -> bytes:
        self._usage = usage
        head = b"" if self._index else self._framing.annotations(self._shared.annotations)
        return head + (self._chunk(self._echoed) if self._echoed else b"")

    def feed(self, events: Sequence[Event]) -> bytes:
        text = "".join(event.text for event in events if isinstance(event, BlockDelta))
        scored = [event for event in events if isinstance(event, TokensScored)]
        wanted = scored and self._shared.asked.sampling.logprobs is not None
        out = [self._chunk(text, self._scores.object(scored) if wanted else None)] if text or wanted else []
        for event in events:
            if isinstance(event, Usage):
                self._usage = event
            elif isinstance(event, TurnReport):
                self._report = {"nvext": event.fields}
            elif isinstance(event, Finished):
                out.append(self._chunk("", ended=ending(event)))
                if self._shared.end(self._index, self._usage):
                    out.append(self._end())
        return b"".join(out)

    def running(self, index: int) -> None:
        return None

    def keepalive(self) -> bytes:
        return self._framing.keepalive

    def fail(self, failure: TurnFailure) -> bytes:
        return self._framing.unnamed(error_object(failure))

    def _end(self) -> bytes:
        shared, framing = self._shared, self._framing
        if not shared.asked.usage:
            return framing.done
        return framing.unnamed({**shared.common, "choices": [], "usage": usage_object(shared.usage)}) + framing.done

    def _chunk(
        self, text: str, logprobs: dict[str, Any] | None = None, ended: dict[str, object] | None = None
    ) -> bytes:
        choice = {"index": self._index, "text": text, "logprobs": logprobs, **(ended or {"finish_reason": None})}
        return self._framing.unnamed({**self._shared.common, "choices": [choice], **(self._report if ended else {})})


class DocumentEncoder:
    """See wire.Encoder; the same events, folded into one object."""

    media_type = "application/json"
    streams = False
    carried = False

    def __init__(self, shared: SharedAnswer, index: int, prompt: str) -> None:
        self._shared = shared
        self._index = index
        self._text = [prompt] if shared.asked.echo else []
        self._scored: list[TokensScored] = []
        self._usage = Usage(0)
        self._report: dict[str, Any] = {}

    def start(self, usage: Usage) -> bytes:
        return b""

    def feed(self, events: Sequence[Event]) -> bytes:
        for event in events:
            if isinstance(event, BlockDelta):
                self._text.append(event.text)
            elif isinstance(event, TokensScored):
                self._scored.append(event)
            elif isinstance(event, Usage):
                self._usage = event
            elif isinstance(event, TurnReport):
                self._report = {"nvext": event.fields}
            elif isinstance(event, Finished):
                return self._finished(event)
        return b""

    def running(self, index: int) -> None:
        return None

    def keepalive(self) -> bytes:
        return b""

    def fail(self, failure: TurnFailure) -> bytes:
        return b""

    def _finished(self, event: Finished) -> bytes:
        shared = self._shared
        logprobs = None
        if shared.asked.sampling.logprobs is not None:
            logprobs = _Scores(len(self._text[0]) if shared.asked.echo else 0).object(self._scored)
        shared.choices[self._index] = {
            "index": self._index,
            "text": "".join(self._text),
            "logprobs": logprobs,
            **ending(event),
        }
        if not shared.end(self._index, self._usage):
            return b""
        choices = [choice for _, choice in sorted(shared.choices.items())]
        return _encode({**shared.common, "choices": choices, "usage": usage_object(shared.usage), **self._report})
