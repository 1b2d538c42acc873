"""A served model: its prompt builder, dialect, engine and what it remembers of earlier turns.

Promise: everything that belongs to one model id is here and nothing else; big prompts are rendered and tokenized off
the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from turnwire.engines.interface import Engine, EngineInfo
from turnwire.parsers import Dialect
from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.prompt import Prompt, Tokenizer
from turnwire.turns import Conversation, Sampling

if TYPE_CHECKING:
    from .passage import Passage

__all__ = ["Continuity", "ModelRuntime"]


class Continuity(msgspec.Struct):
    header: str = "unknown"
    expected_cached: int = 0


class ModelRuntime:
    """One served model."""

    # Conversations whose text is shorter than this are built on the event loop: a thread costs more than it saves.
    INLINE_CHARS = 4096

    def __init__(
        self,
        model_id: str,
        *,
        engine: Engine,
        info: EngineInfo,
        dialect: Dialect,
        builder: PromptBuilder,
        tokenizer: Tokenizer,
        window: int,
        aliases: Sequence[str] = (),
        display_name: str | None = None,
        sampling: Sampling | None = None,
        stop_token_ids: tuple[int, ...] = (),
    ) -> None:
        self.id = model_id
        self.aliases = tuple(aliases)
        self.display_name = display_name or model_id
        self.engine = engine
        self.info = info
        self.dialect = dialect
        self.builder = builder
        self.tokenizer = tokenizer
        self.window = window
        self.stop_token_ids = stop_token_ids
        self._sampling = sampling or Sampling()
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="prompt")

    async def build(self, conversation: Conversation, tenant: str) -> Prompt:
        """The prompt of a conversation, with earlier turns replayed exactly where they can be recalled."""
        size = sum(len(block.text) for m in conversation.messages for block in m.blocks if hasattr(block, "text"))
        if size < self.INLINE_CHARS and len(conversation.tools) < 4:
            return self.builder.build(conversation)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self.builder.build, conversation)

    async def prepare(self, conversation: Conversation, tenant: str) -> tuple[Prompt, Continuity]:
        """The prompt, and whether it keeps the session's prefix."""
        prompt = await self.build(conversation, tenant)
        return prompt, Continuity()

    def remember(self, passage: Passage) -> None:
        """Keep what the next turn needs: the tokens for continuity, the raw turn for clients that rewrite it."""

    # ----------------------------------------------------------------------------------------------- per request

    def seals_for(self, tenant: str, turn_id: str) -> None:
        """A sealer for one turn's output, where the engine tells its token ids."""
        return None

    def cache_salt(self, tenant: str) -> str | None:
        """What keeps one tenant's prefix cache apart from another's."""
        return None if tenant == "default" or not self.engine.capabilities.cache_salt else tenant

    def defaults_under(self, sampling: Sampling) -> Sampling:
        """The request's wishes over the model's defaults."""
        missing = {
            field: value
            for field in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty")
            if getattr(sampling, field) is None and (value := getattr(self._sampling, field)) is not None
        }
        return msgspec.structs.replace(sampling, **missing) if missing else sampling
