"""An engine that can be killed at any token, and says a text that its prompt determines."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence

from benchmarks.storm.story import NONCE, said

from turnwire.engines.bridge import push
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    EngineError,
    EngineInfo,
    EventBatch,
    GenerateRequest,
    Generation,
    Receiver,
    Step,
    TokenBatch,
)
from turnwire.prompts.prompt import Tokenizer


class MortalEngine:
    """Dies after a number of tokens that its dice choose, with everything that runs on it, and is back a little later.
    Now and then it refuses work, or ends a stream as if nothing had happened."""

    capabilities = Capabilities(yields="tokens")

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self._tokenizer = tokenizer
        self._dice = random.Random(seed)
        self._lives = self._dice.randint(50, 2000)
        self._life = 0
        self.up = True
        self.deaths = self.open = self.begun = self.left = self.finished = 0

    async def start(self) -> EngineInfo:
        return EngineInfo(name="mortal")

    async def health(self) -> bool:
        return self.up

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        return []

    async def close(self) -> None:
        pass

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        if not request.conversation.messages:
            # The pool's own question, whether anything comes out at all.
            return push(self._sign_of_life(), receiver)
        return _Counted(self, self._steps(request), receiver)

    async def _sign_of_life(self) -> AsyncGenerator[Step, None]:
        self._open_door()
        yield TokenBatch("x", (1,))
        yield Completion("length", 1, 1)

    def _open_door(self) -> None:
        if not self.up:
            raise EngineError("unreachable", "The engine is down.")
        if self._dice.random() < 0.05:
            raise EngineError("overloaded", "The engine has no room.", retry_after=1)

    async def _steps(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
        self._open_door()
        life = self._life
        nonce = NONCE.findall(request.conversation.last_user_text)[-1]
        ids = self._tokenizer.encode(f"I think of {nonce}.\n</think>\n\n{said(nonce)}")
        forgets_the_end = self._dice.random() < 0.02
        detokenizer = self._tokenizer.detokenizer()
        detokenizer.feed(ids[: request.resumed])
        self.begun += 1
        self.open += 1
        try:
            at = request.resumed
            while at < len(ids):
                await asyncio.sleep(0)
                if self._life != life:
                    raise EngineError("disconnected", "The engine went away.")
                count = self._dice.randint(1, 6)
                yield TokenBatch(detokenizer.feed(ids[at : at + count]), tuple(ids[at : at + count]))
                at += count
                self._age(count)
            if not forgets_the_end:
                self.finished += 1
                yield Completion("stop", len(request.prompt_ids), len(ids) - request.resumed)
        finally:
            self.open -= 1

    def _age(self, tokens: int) -> None:
        self._lives -= tokens
        if self._lives <= 0 and self.up:
            self._lives = self._dice.randint(50, 4000)
            self._life += 1
            self.deaths += 1
            self.up = False
            asyncio.get_running_loop().call_later(self._dice.uniform(0.001, 0.05), self._rise)

    def _rise(self) -> None:
        self.up = True


class _Counted:
    """A generation on a mortal engine, and its receiver. One that is given up before its end was delivered counts as
    left: its generator cannot tell, which may not have been begun yet, or may hold its last step back for a reader."""

    def __init__(self, engine: MortalEngine, steps: AsyncGenerator[Step, None], receiver: Receiver) -> None:
        self._engine = engine
        self._receiver = receiver
        self._over = False
        self._generation = push(steps, self)

    def tokens(self, batch: TokenBatch) -> None:
        self._receiver.tokens(batch)

    def events(self, batch: EventBatch) -> None:
        self._receiver.events(batch)

    def done(self, completion: Completion) -> None:
        self._over = True
        self._receiver.done(completion)

    def failed(self, error: EngineError) -> None:
        self._over = True
        self._receiver.failed(error)

    def abort(self) -> None:
        self._engine.left += not self._over
        self._over = True
        self._generation.abort()

    def pause(self) -> None:
        self._generation.pause()

    def resume(self) -> None:
        self._generation.resume()
