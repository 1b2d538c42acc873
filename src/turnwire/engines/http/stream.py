"""One streamed generation over HTTP: a request out, and its answer pushed into a receiver as its bytes come.

Promise: one wake-up of the socket is one call of the receiver, without a task or a wait between them. A connection that
fails before the answer's head is `unreachable`, later `disconnected`; an idle connection that the engine had dropped
meanwhile is replaced once. An answer that ends without the engine's own finish is never a success. After the end, or
after `abort`, the receiver gets nothing more.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

from turnwire.engines.failures import refusal
from turnwire.engines.http.answer import Answer, MalformedAnswer
from turnwire.engines.http.connections import Connection, Connections
from turnwire.engines.http.lines import LineReader
from turnwire.engines.http.sse import EventReader
from turnwire.engines.interface import Completion, EngineError, EventBatch, Receiver, TokenBatch
from turnwire.turns import Note
from turnwire.unreadable import UNREADABLE

__all__ = ["Reading", "Stream"]

log = logging.getLogger("turnwire.engines")

_LINGER_SECONDS = 0.5
_LINGER_BYTES = 64 * 1024
_REFUSAL_SECONDS = 5.0
_REFUSAL_BYTES = 64 * 1024


class Reading(ABC):
    """One generation's answer, read without I/O. `end` is set once the engine itself has finished, `error` once it said
    that it failed; what came before in the same read is still given. `knows`: the reading knows the stream's events by
    their bytes, so that `chunk` is worth a try."""

    knows = False
    end: Completion | None = None
    error: EngineError | None = None

    @abstractmethod
    def feed(self, events: bytes) -> TokenBatch | EventBatch | None:
        """Take a JSON array of events and give what they bring as one batch."""

    def chunk(self, data: bytes) -> TokenBatch | None:
        """The same for a read that is one chunk of the answer with one event in it, and brings output and nothing else;
        None, and nothing is taken, where it is anything else."""
        return None

    def running(self, events: bytes) -> TokenBatch | None:
        """The same for events as they came, where the reading knows them by their bytes; None, and nothing is taken,
        where it has to see their payloads."""
        return None

    def close(self) -> Completion | None:
        """The completion of a stream that is over: `end`, where the engine finished at all."""
        return self.end


class Stream:
    """A generation under way. `left` is called when it is given up while the engine may still be at work."""

    __slots__ = (
        "_answer",
        "_connection",
        "_connections",
        "_dialling",
        "_engine",
        "_events",
        "_left",
        "_notes",
        "_over",
        "_paused",
        "_reading",
        "_receiver",
        "_request",
        "_spare",
        "_streams",
        "_timer",
        "_tokens",
        "received",
    )

    def __init__(
        self,
        engine: str,
        connections: Connections,
        request: bytes,
        reading: Reading,
        receiver: Receiver,
        *,
        notes: tuple[Note, ...] = (),
        left: Callable[[], None] | None = None,
        events: EventReader | LineReader | None = None,
    ) -> None:
        self._engine = engine
        self._connections = connections
        self._request = request
        self._reading = reading
        self._receiver = receiver
        self._tokens = receiver.tokens
        self._notes = notes
        self._left = left
        self._answer = Answer()
        self._events = events if events is not None else EventReader()
        self._connection: Connection | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._spare = bytearray()
        self._paused = False
        self._over = False
        self._streams = False
        self.received: Callable[[bytes], None] = self._opening

    def begin(self) -> None:
        """Send the request: at once on an idle connection, else on a new one."""
        connection = self._connections.take()
        if connection is not None:
            self.connected(connection)
        else:
            self._dialling = self._connections.dial(self)

    # ------------------------------------------------------------------------------------------------ generation

    def abort(self) -> None:
        if not self._over:
            sent = self._connection is not None
            self._leave()
            if sent and self._left is not None:
                self._left()

    def pause(self) -> None:
        self._paused = True
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        self._paused = False
        if self._connection is not None:
            self._connection.resume()

    # ------------------------------------------------------------------------------------------------- connecting

    def connected(self, connection: Connection) -> None:
        """The connection is open: send the request."""
        self._dialling = None
        self._connection, connection.exchange = connection, self
        if self._paused:
            connection.pause()
        connection.send(self._request)

    def unreachable(self, error: OSError) -> None:
        """No connection could be made."""
        self._dialling = None
        self._fail(EngineError("unreachable", f"no {self._engine} engine answers there ({_words(error)})"))

    def ended(self) -> None:
        """The engine closed the connection in order, which ends an answer that has no other end."""
        if self._streams:
            try:
                self._answer.close()
            except MalformedAnswer:
                return
            self._settle()

    def lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        connection, self._connection = self._connection, None
        if self._over:
            return
        said = f" ({_words(error)})" if error is not None else ""
        if self.received == self._refusing:
            self._refuse()
        elif self._answer.status:
            completion = self._reading.close()
            if completion is not None:
                self._leave()
                self._receiver.done(completion)
            else:
                self._fail(EngineError("disconnected", f"{self._engine} went away in mid-stream{said}"))
        elif connection is not None and connection.used and not self._answer.begun:
            self._dialling = self._connections.dial(self)
        else:
            self._fail(EngineError("unreachable", f"{self._engine} closed the connection without an answer{said}"))

    def closed(self) -> None:
        """The engine adapter was closed."""
        self._fail(EngineError("disconnected", f"the {self._engine} engine was closed"))

    # --------------------------------------------------------------------------------------- reading, by phase

    def _opening(self, data: bytes) -> None:
        """Until the answer's head is complete."""
        malformed: MalformedAnswer | None = None
        try:
            body = self._answer.feed(data)
        except MalformedAnswer as error:
            malformed, body = error, error.before
        status = self._answer.status
        if malformed is not None and status != 200:
            self._broken("internal", f"an answer that cannot be read: {malformed}")
            return
        if not status:
            return
        # A long prompt's request takes megabytes, and is not sent again once there is an answer.
        self._request = b""
        if status == 200:
            self._streams, self.received = True, self._streaming
            if self._notes:
                self._receiver.events(EventBatch(self._notes))
            if not self._over:
                self._take(body)
            if malformed is not None:
                self._broken("disconnected", f"a stream that cannot be read: {malformed}")
        else:
            self.received = self._refusing
            self._timer = asyncio.get_running_loop().call_later(_REFUSAL_SECONDS, self._refuse)
            self._refused(body)

    def _streaming(self, data: bytes) -> None:
        """The generation itself."""
        try:
            body = self._answer.feed(data)
        except MalformedAnswer as error:
            self._take(error.before)
            self._broken("disconnected", f"a stream that cannot be read: {error}")
            return
        self._take(body)
        if self._reading.knows and self._answer.at_chunk and not self._events.holds and not self._over:
            self.received = self._running

    def _running(self, data: bytes) -> None:
        """The same where nothing is held of earlier reads: nearly always the next one is one chunk with one event."""
        batch = self._reading.chunk(data)
        if batch is None:
            self.received = self._streaming
            self._streaming(data)
            return
        try:
            # Held by the object, not by its class: from a local name it is called without a search.
            tokens = self._tokens
            tokens(batch)
        except Exception:
            self._defect()

    def _defect(self) -> None:
        log.exception("a defect in whoever receives a generation")
        self._broken("internal", "output that the gateway could not handle")

    def _take(self, body: bytes) -> None:
        reading, events = self._reading, self._events
        try:
            whole = events.feed(body)
            batch: TokenBatch | EventBatch | None = reading.running(whole)
            if batch is None and whole and (array := events.array(whole)) is not None:
                batch = reading.feed(array)
        except EngineError as error:
            self._fail(error, left=True)
            return
        except UNREADABLE as error:
            self._broken("internal", f"an event that cannot be read: {error}")
            return
        try:
            if type(batch) is TokenBatch:
                # Held by the object, not by its class: from a local name it is called without a search.
                tokens = self._tokens
                tokens(batch)
            elif batch is not None:
                assert type(batch) is EventBatch
                self._receiver.events(batch)
        except Exception:
            self._defect()
        if reading.end is not None or reading.error is not None or events.done or self._answer.over:
            self._settle()

    def _settle(self) -> None:
        """The engine has finished, failed or stopped talking."""
        if self._over:
            return
        reading = self._reading
        if reading.end is None and reading.error is None and not self._events.done:
            self._last_event()
            if self._over:
                return
        if reading.error is not None:
            self._fail(reading.error)
            return
        completion = reading.close()
        if completion is None:
            said = f"{self._engine} ended the stream before it finished the generation"
            self._fail(EngineError("disconnected", said))
            return
        self._over = True
        if self._answer.over:
            self._release()
        elif self._connection is not None:
            # The few bytes that are still to come are taken, so that the connection can be used again.
            self.received = self._lingering
            self.resume()
            self._timer = asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._leave)
        self._receiver.done(completion)

    def _last_event(self) -> None:
        """An event without its blank line, at the end of the answer. One that was cut is not an event."""
        try:
            array = self._events.array(self._events.finish())
            batch = self._reading.feed(array) if array is not None else None
        except (*UNREADABLE, EngineError):
            return
        try:
            if isinstance(batch, TokenBatch):
                self._receiver.tokens(batch)
            elif batch is not None:
                self._receiver.events(batch)
        except Exception:
            self._defect()

    def _refusing(self, data: bytes) -> None:
        """The body of an answer that is not a generation."""
        try:
            self._refused(self._answer.feed(data))
        except MalformedAnswer:
            self._refuse()

    def _refused(self, body: bytes) -> None:
        self._spare += body
        if self._answer.over or len(self._spare) > _REFUSAL_BYTES or 300 <= self._answer.status < 400:
            self._refuse()

    def _refuse(self) -> None:
        headers = self._answer.headers
        said = bytes(self._spare[:_REFUSAL_BYTES])
        error = refusal(
            self._engine, self._answer.status, said, headers.get("retry-after"), location=headers.get("location")
        )
        self._fail(error)

    def _lingering(self, data: bytes) -> None:
        """The few bytes after the last event."""
        self._spare += data
        try:
            self._answer.feed(data)
        except MalformedAnswer:
            self._leave()
            return
        if self._answer.over or len(self._spare) > _LINGER_BYTES:
            self._release()

    # --------------------------------------------------------------------------------------------------- ends

    def _release(self) -> None:
        """Give the connection back, or drop it if it cannot be used again."""
        if self._answer.over and self._answer.reusable:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.give_back()
        self._leave()

    def _broken(self, kind: Literal["disconnected", "internal"], said: str) -> None:
        """The answer cannot be read further, while the engine may still be at work."""
        self._fail(EngineError(kind, f"{self._engine} sent {said}"), left=True)

    def _fail(self, error: EngineError, *, left: bool = False) -> None:
        if self._over:
            return
        if self._answer.over and not left:
            self._over = True
            self._release()
        else:
            self._leave()
        if left and self._left is not None:
            self._left()
        self._receiver.failed(error)

    def _leave(self) -> None:
        """Let go of everything; the receiver gets nothing more."""
        self._over = True
        self.received = _ignored
        if self._timer is not None:
            self._timer.cancel()
        if self._dialling is not None:
            self._dialling.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop()


def _ignored(data: bytes) -> None:
    """What comes after the end."""


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
