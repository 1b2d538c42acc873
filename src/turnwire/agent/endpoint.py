"""An OpenAI-compatible endpoint over HTTP: chat streams and embeddings.

Promise: leaving a stream closes its connection, which stops the server's work. Before the first byte of an answer a
busy or starting server is asked again, a few times; after it nothing is repeated. Every failure is an EndpointError
that says what the server said.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from turnwire.agent.frames import FrameError, FrameReader
from turnwire.unreadable import UNREADABLE

__all__ = ["Endpoint", "EndpointError"]

_CONNECT_SECONDS = 10.0
_SILENT_SECONDS = 600.0
_DRAIN_SECONDS = 0.5
_TRIES = 3
_AGAIN = frozenset({429, 503, 529})
_LONGEST_WAIT = 10.0
_ERROR_BYTES = 64 * 1024


class EndpointError(RuntimeError):
    """A request without an answer. `status` is None where no HTTP answer came."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Endpoint:
    """A server's address and key. An address without a path means its `/v1`."""

    def __init__(self, base_url: str, *, api_key: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        base = base_url.rstrip("/")
        self.base_url = base if urlsplit(base).path else f"{base}/v1"
        self._headers = {"Accept-Encoding": "identity", **(headers or {})}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def models(self) -> list[str]:
        """The ids of the models that are served."""
        answer = await self._json("GET", "/models", None)
        rows = answer.get("data")
        return [row["id"] for row in rows if isinstance(row, dict) and "id" in row] if isinstance(rows, list) else []

    async def embed(self, model: str, texts: Sequence[str], **extra: Any) -> list[list[float]]:
        """One vector per text, in order."""
        body = {"model": model, "input": list(texts), "encoding_format": "float", **extra}
        rows = (await self._json("POST", "/embeddings", body)).get("data")
        if not isinstance(rows, list) or len(rows) != len(texts):
            raise EndpointError(f"{self.base_url}/embeddings did not answer with one vector per text")
        return [row["embedding"] for row in sorted(rows, key=lambda row: row["index"])]

    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A whole chat completion."""
        return await self._json("POST", "/chat/completions", {**body, "stream": False})

    async def stream(
        self, body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> AsyncGenerator[tuple[str, Any], None]:
        """A chat completion's events as they arrive: name (mostly empty) and payload."""
        answer = await self._ask("POST", "/chat/completions", {**body, "stream": True}, headers)
        over = False
        try:
            if answer.content_type == "application/json":
                # A server that cannot stream: its whole answer is one event.
                yield "", _object(await answer.read(), self.base_url)
                over = True
                return
            reader = FrameReader()
            while not reader.done:
                data = await answer.content.readany()
                for event in reader.feed(data or b"\n\n"):
                    yield event
                if not data:
                    break
            over = True
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise EndpointError(f"{self.base_url} went away in mid-answer ({_words(error)})") from error
        except FrameError as error:
            raise EndpointError(f"{self.base_url}: {error}") from None
        finally:
            if over and await _drained(answer):
                answer.release()
            else:
                answer.close()

    # ------------------------------------------------------------------------------------------------------ requests

    async def _json(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        answer = await self._ask(method, path, body, {})
        try:
            return _object(await answer.read(), self.base_url)
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise EndpointError(f"{self.base_url} went away in mid-answer ({_words(error)})") from error
        finally:
            answer.release()

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        data = None if body is None else msgspec.json.encode(body)
        for attempt in range(1, _TRIES + 1):
            wait = 0.25 * 2**attempt
            try:
                answer = await self._open().request(
                    method, self.base_url + path, data=data, headers={"Content-Type": "application/json", **headers}
                )
            except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
                if attempt == _TRIES:
                    raise EndpointError(f"No answer from {self.base_url} ({_words(error)}). Is it running?") from error
            else:
                if answer.status < 400:
                    return answer
                failure = EndpointError(
                    f"{self.base_url}{path} answered {answer.status}: {await _refusal(answer)}", answer.status
                )
                if answer.status not in _AGAIN or attempt == _TRIES:
                    raise failure
                wait = min(_seconds(answer.headers.get("retry-after")) or wait, _LONGEST_WAIT)
            await asyncio.sleep(wait)
        raise AssertionError("the last try returns or raises")

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_SILENT_SECONDS),
                connector=aiohttp.TCPConnector(keepalive_timeout=2.0),
            )
        return self._session


async def _drained(answer: aiohttp.ClientResponse) -> bool:
    """Whether the server ended its answer; a connection that is closed before looks like a reader who left."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while await answer.content.readany():
                pass
    except (aiohttp.ClientError, ConnectionError, TimeoutError):
        return False
    return True


async def _refusal(answer: aiohttp.ClientResponse) -> str:
    text = (await answer.content.read(_ERROR_BYTES)).decode("utf-8", "replace")
    answer.close()
    try:
        error = msgspec.json.decode(text).get("error")
        return str(error["message"] if isinstance(error, dict) else error)
    except (*UNREADABLE, AttributeError, KeyError):
        return text.strip()[:500] or answer.reason or "no reason given"


def _object(data: bytes, base: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except UNREADABLE as error:
        raise EndpointError(f"{base} did not answer with a JSON object: {error}") from None


def _seconds(text: str | None) -> float:
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return 0.0


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
