"""The streaming answer: events of a turn as Chat Completions chunks, each the moment it is known.

Promise: one bytes join per batch and constant work per event. Id and name of a call are in its first fragment and its
index never changes; only standard chunks are sent unless the request opted in to more; `[DONE]` follows only the
engine's own end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from turnwire.protocols.chat.echo import Echo, SharedAnswer
from turnwire.protocols.chat.errors import error_object
from turnwire.protocols.chat.vocabulary import (
    BLOCK_BREAK,
    completion_id,
    dispatch_object,
    ending,
    fingerprint,
    seal_detail,
    usage_object,
)
from turnwire.protocols.framing import SSE, Framing, json_line, quoted
from turnwire.protocols.wire import Delta, TurnFacts, TurnFailure
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Finished,
    SealCarried,
    TokensScored,
    ToolCallClosed,
    TurnReport,
    Usage,
)

__all__ = ["StreamEncoder"]

_encode = msgspec.json.Encoder().encode


class StreamEncoder:
    """See wire.Encoder. `choice` is this turn's place among the choices that share the answer; `framing` is how chunks
    are separated on the connection."""

    media_type = "text/event-stream"
    streams = True
    carried = False

    def __init__(
        self,
        facts: TurnFacts,
        echo: Echo | None = None,
        *,
        choice: int = 0,
        shared: SharedAnswer | None = None,
        framing: Framing = SSE,
    ) -> None:
        self._facts = facts
        self._echo = echo or Echo()
        self._shared = shared or SharedAnswer()
        self._framing = framing
        self._choice = choice
        self._usage = Usage(0)
        self._calls: dict[int, int] = {}
        self._thoughts: dict[int, list[str]] = {}
        self._heads: dict[int, tuple[bytes, bytes]] = {}
        self._details = 0
        self._report: dict[str, object] | None = None
        self._scores: list[tuple[str, float, tuple[tuple[str, float], ...]]] = []
        self._unwritten: dict[int, str] = {}
        self._spoken: set[str] = set()
        self._common = (
            b'%b{"id":"%b","object":"chat.completion.chunk","created":%d,"model":%b,"system_fingerprint":"%b"'
        ) % (
            framing.data,
            completion_id(facts.turn_id).encode(),
            facts.created,
            quoted(facts.model),
            fingerprint(facts.model).encode(),
        )
        self._head = self._common + b',"choices":[{"index":%d,"delta":' % choice
        self._tail = b',"finish_reason":null}]}' + framing.end

    def start(self, usage: Usage) -> bytes:
        self._usage = usage
        # The first of several answers speaks for all.
        head = b"" if self._choice else self._framing.annotations(self._facts.annotations)
        return head + self._head + b'{"role":"assistant","content":""}' + self._tail

    def feed(self, events: Sequence[Event]) -> bytes:
        out: list[bytes] = []
        if self._echo.logprobs is not None:
            events = _scores_first(events)
        for event in events:
            if type(event) is BlockDelta:
                text = event.text
                if not text:
                    continue
                head, tail = self._heads[event.index]
                if self._unwritten and event.index in self._unwritten:
                    text = self._first(event.index, text)
                if self._scores:
                    tail = tail.removesuffix(self._tail) + self._logprobs() + self._tail
                out += (head, quoted(text), tail)
                thought = self._thoughts.get(event.index)
                if thought is not None:
                    thought.append(event.text)
            else:
                handle = _HANDLERS.get(type(event))
                if handle is not None:
                    handle(self, event, out)
        return b"".join(out)

    def running(self, index: int) -> Delta | None:
        if index not in self._heads or index in self._unwritten or self._scores:
            return None
        thought = self._thoughts.get(index)
        return Delta(*self._heads[index], ran=None if thought is None else lambda text, deltas: thought.append(text))

    def keepalive(self) -> bytes:
        return self._framing.keepalive

    def fail(self, failure: TurnFailure) -> bytes:
        return self._framing.unnamed(error_object(failure))

    # --------------------------------------------------------------------------------------------------- the events

    def _opened(self, event: BlockOpened, out: list[bytes]) -> None:
        self._unwritten[event.index] = event.kind
        if event.kind == "tool_call":
            index = self._calls[event.index] = len(self._calls)
            first = {
                "index": index,
                "id": event.call_id,
                "type": "function",
                "function": {"name": event.name, "arguments": ""},
            }
            out.append(self._chunk({"tool_calls": [first]}))
            head = self._head + b'{"tool_calls":[{"index":%d,"function":{"arguments":' % index
            self._heads[event.index] = (head, b"}}]}" + self._tail)
        elif event.kind == "reasoning":
            self._heads[event.index] = (self._head + b'{"reasoning_content":', b"}" + self._tail)
            if self._facts.dispatch:
                self._thoughts[event.index] = []
        else:
            self._heads[event.index] = (self._head + b'{"content":', b"}" + self._tail)

    def _closed(self, event: BlockClosed, out: list[bytes]) -> None:
        self._heads.pop(event.index, None)
        self._unwritten.pop(event.index, None)
        thought = self._thoughts.pop(event.index, None)
        if thought is not None:
            whole = {"index": self._choice, "reasoning_content": "".join(thought)}
            self._announce("reasoning_dispatch", whole, out, {})
        if event.seal:
            self._carry(event.seal, out)

    def _call_closed(self, event: ToolCallClosed, out: list[bytes]) -> None:
        head, tail = self._heads.pop(event.index)
        if event.index in self._unwritten:
            # The arguments became known only as a whole.
            del self._unwritten[event.index]
            out += (head, quoted(event.arguments), tail)
        if self._facts.dispatch and not event.malformed:
            index = self._calls[event.index]
            fragment = {"tool_calls": [{"index": index, "function": {"arguments": ""}}]}
            self._announce("tool_call_dispatch", dispatch_object(event, self._choice, index), out, fragment)

    def _announce(self, name: str, body: object, out: list[bytes], fragment: Mapping[str, object]) -> None:
        if self._echo.dispatch == "delta":
            out.append(self._chunk({**fragment, name: body}))
        else:
            out.append(self._framing.event(name, body))

    def _sealed(self, event: SealCarried, out: list[bytes]) -> None:
        # Of use only where a thought came before: clients keep the list with the message's reasoning.
        if self._details:
            self.carried = True
            self._carry(event.seal, out)

    def _carry(self, seal: str, out: list[bytes]) -> None:
        out.append(self._chunk({"reasoning_details": [seal_detail(seal, self._details)]}))
        self._details += 1

    def _scored(self, event: TokensScored, out: list[bytes]) -> None:
        self._scores += event.tokens

    def _logprobs(self) -> bytes:
        """The log probabilities that no chunk has carried yet, as a member of the next."""
        rivals, scores = self._echo.logprobs, self._scores
        if rivals is None or not scores:
            return b""
        self._scores = []
        content = [score_object(token, logprob, top, rivals) for token, logprob, top in scores]
        return b',"logprobs":' + json_line({"content": content, "refusal": None})

    def _reported(self, event: TurnReport, out: list[bytes]) -> None:
        self._report = event.fields

    def _used(self, event: Usage, out: list[bytes]) -> None:
        self._usage = event

    def _finished(self, event: Finished, out: list[bytes]) -> None:
        ended = json_line(ending(event))[1:]
        report = b',"nvext":' + json_line(self._report) if self._report is not None else b""
        out.append(self._head + b"{}" + self._logprobs() + b"," + ended + b"]" + report + b"}" + self._framing.end)
        if self._shared.end(self._usage):
            if self._echo.usage:
                usage = _encode(usage_object(self._shared.usage))
                out.append(self._common + b',"choices":[],"usage":' + usage + b"}" + self._framing.end)
            out.append(self._framing.done)

    def _chunk(self, delta: dict[str, object]) -> bytes:
        return self._head + json_line(delta) + self._tail

    def _first(self, index: int, text: str) -> str:
        """A block's first text. The API joins all thoughts and all prose of a turn; a break keeps them apart."""
        kind = self._unwritten.pop(index)
        if kind == "tool_call" or kind not in self._spoken:
            self._spoken.add(kind)
            return text
        return BLOCK_BREAK + text


def _scores_first(events: Sequence[Event]) -> Sequence[Event]:
    """A batch with its log probabilities before the text that they belong to, so that one chunk carries both."""
    scored: list[Event] = [event for event in events if type(event) is TokensScored]
    return [*scored, *(event for event in events if type(event) is not TokensScored)] if scored else events


def score_object(token: str, logprob: float, top: Sequence[tuple[str, float]], rivals: int) -> dict[str, object]:
    """One token's log probability as the API spells it, with as many rivals as were asked for."""
    return {
        "token": token,
        "logprob": logprob,
        "bytes": list(token.encode("utf-8", "replace")),
        "top_logprobs": [
            {"token": rival, "logprob": value, "bytes": list(rival.encode("utf-8", "replace"))}
            for rival, value in top[:rivals]
        ],
    }


_HANDLERS: dict[type, Callable[..., None]] = {
    BlockOpened: StreamEncoder._opened,
    BlockClosed: StreamEncoder._closed,
    ToolCallClosed: StreamEncoder._call_closed,
    SealCarried: StreamEncoder._sealed,
    TokensScored: StreamEncoder._scored,
    TurnReport: StreamEncoder._reported,
    Usage: StreamEncoder._used,
    Finished: StreamEncoder._finished,
}
