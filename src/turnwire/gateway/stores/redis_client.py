"""Clients of Redis, for all that is shared through it.

Promise: an answer takes at most `answer_s` or fails; a command is tried once more at once, since after a restart of
Redis every pooled connection is dead. Without the package a StoreError says what to install.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from turnwire.gateway.stores.store import StoreError

__all__ = ["Failures", "async_redis", "threaded_redis"]

Failures: TypeAlias = tuple[type[Exception], ...]
"""What a client raises where Redis does not answer."""


def threaded_redis(url: str, answer_s: float) -> tuple[Any, Failures]:
    """A client that threads wait for, and its failures."""
    package, options = _package(answer_s)
    return package.Redis.from_url(url, **options), (package.RedisError, OSError)


def async_redis(url: str, answer_s: float) -> tuple[Any, Failures]:
    """A client that is awaited, and its failures."""
    package, options = _package(answer_s)
    return package.asyncio.from_url(url, **options), (package.RedisError, OSError)


def _package(answer_s: float) -> tuple[Any, dict[str, Any]]:
    try:
        import redis
        import redis.asyncio
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError:
        raise StoreError("A Redis store needs the `redis` package: pip install 'turnwire[redis]'") from None
    times = {"socket_timeout": answer_s, "socket_connect_timeout": answer_s}
    return redis, {**times, "retry": Retry(NoBackoff(), 1), "decode_responses": False}
