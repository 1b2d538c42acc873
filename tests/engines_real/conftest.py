"""One real vLLM for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .vllm_server import VLLMServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    flags = ("--enable-prompt-tokens-details", "--scheduling-policy", "priority", "--enable-scale-out")
    with VLLMServer(log, *flags) as running:
        yield running
