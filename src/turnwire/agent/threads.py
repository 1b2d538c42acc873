"""Functions that may block, run away from the event loop.

Promise: neither the loop nor the process waits for a function that never returns.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["in_thread"]


def in_thread(function: Callable[..., Any], *arguments: Any, **named: Any) -> Awaitable[Any]:
    """What the function returns, from a daemon thread of its own."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: Exception | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    def run() -> None:
        result: Any = None
        problem: Exception | None = None
        try:
            result = context.run(function, *arguments, **named)
        except StopIteration as error:
            # A future cannot carry it.
            problem = RuntimeError(f"StopIteration: {error}")
        except BaseException as error:
            problem = error if isinstance(error, Exception) else RuntimeError(repr(error))
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, problem)

    threading.Thread(target=run, daemon=True, name=f"tool-{getattr(function, '__name__', 'call')}").start()
    return future
