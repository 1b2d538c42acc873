"""The embedded engine through the conformance suite of all adapters, with a fake llama.cpp server inside it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from turnwire.engines.embedded import engine as embedded
from turnwire.engines.embedded.engine import EmbeddedEngine, EmbeddedSettings
from turnwire.engines.embedded.missing_ids import Fragments
from turnwire.engines.interface import Engine
from turnwire.engines.scripted.script import Line
from turnwire.prompts.tokenizers.gguf_file import GGUFFacts

from .conformance import CHECKS, Subject, Watch
from .servers import FakeLlamaCpp
from .toytokenizer import ToyTokenizer

# The toy vocabulary's bytes, in the spelling of vocabularies that fall back to bytes.
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


class EmbeddedSubject:
    name = "embedded"

    @asynccontextmanager
    async def open(self, line: Line) -> AsyncIterator[tuple[Engine, Watch | None]]:
        server = FakeLlamaCpp(line, ToyTokenizer())
        url = await server.start()
        facts = GGUFFacts(metadata={"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": BYTES}, window=4096)
        with (
            patch.object(embedded, "_find", lambda model, progress: (Path("toy.gguf"), facts)),
            patch.object(embedded, "load_server", lambda *args: SimpleNamespace(listening_address=url)),
            patch.object(embedded, "load_tokenizer", lambda path: ToyTokenizer()),
            patch.object(embedded.metadata, "version", lambda name: "1"),
        ):
            engine = EmbeddedEngine(settings=EmbeddedSettings(slots=32))
            await engine.start()
        try:
            yield engine, server
        finally:
            await engine.close()
            await server.stop()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_conformance(check: Callable[[Subject], Awaitable[None]]) -> None:
    await check(EmbeddedSubject())


def test_the_toy_vocabulary_spells_bytes() -> None:
    assert Fragments("llama", BYTES).recover("é", 2, [0xA9]) == [0xC3, 0xA9]
