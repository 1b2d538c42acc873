"""Engine specs: the one line by which an operator names an engine, and the engine behind it.

Promise: `parse_spec` touches neither disk nor network and refuses what it does not know with the close names;
`create_engine` imports only the adapter it needs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args
from urllib.parse import urlsplit

import msgspec

from turnwire.engines.interface import Engine

if TYPE_CHECKING:
    from turnwire.engines.upstream.thinking import Switches
    from turnwire.prompts.prompt import Tokenizer

__all__ = ["CHAT_KINDS", "CONVERSATION_KINDS", "EngineKind", "EngineSpec", "SpecError", "create_engine", "parse_spec"]

EngineKind: TypeAlias = Literal[
    "auto",
    "embedded",
    "scripted",
    "capture",
    "vllm",
    "vllm-core",
    "sglang",
    "trtllm",
    "llamacpp",
    "openai",
    "openai-raw",
    "completions",
    "ollama",
    "lmstudio",
    "nim",
    "litellm",
    "openrouter",
    "turnwire",
    "anthropic",
]
CHAT_KINDS = frozenset({"openai", "ollama", "lmstudio", "nim", "litellm", "openrouter"})
"""Servers that are asked by Chat Completions."""
CONVERSATION_KINDS = CHAT_KINDS | {"turnwire", "anthropic"}
"""Servers that take conversations and write the prompts themselves."""
_KINDS = tuple(kind for kind in get_args(EngineKind) if kind != "auto")
_EXAMPLES = {
    "vllm": "http://127.0.0.1:8000",
    "sglang": "http://127.0.0.1:30000",
    "trtllm": "http://127.0.0.1:8000",
    "llamacpp": "http://127.0.0.1:8080",
    "nim": "http://127.0.0.1:8000",
    "litellm": "http://127.0.0.1:4000",
    "turnwire": "http://127.0.0.1:8390",
}
_KNOWN_ADDRESSES = {
    "ollama": "http://127.0.0.1:11434",
    "lmstudio": "http://127.0.0.1:1234",
    "openrouter": "https://openrouter.ai/api/v1",
    "anthropic": "https://api.anthropic.com",
}
_ADDRESS = re.compile(r"https?://\S+|(?:localhost|[\w-]+(?:\.[\w-]+)+):\d+(?:/\S*)?", re.IGNORECASE)


class SpecError(ValueError):
    """A spec that names no engine; the message says what to write instead."""


class EngineSpec(msgspec.Struct, frozen=True):
    """A parsed spec. `target` is a file for `scripted` and `capture`, a model path (or nothing) for `embedded`, else
    a base URL without a trailing slash. `auto` is an address alone: what answers there is yet to be found out. `server`
    says who answers an `openai` route, where that is known."""

    kind: EngineKind
    target: str = ""
    server: str = ""

    def __str__(self) -> str:
        if self.kind == "auto":
            return self.target
        return f"{self.kind}:{self.target}" if self.target else self.kind


def parse_spec(text: str) -> EngineSpec:
    """Read `URL`, `KIND`, `KIND:FILE` or `KIND:URL`, or raise SpecError."""
    text = text.strip()
    name, _, target = text.partition(":")
    if name not in _KINDS and _ADDRESS.fullmatch(text):
        return EngineSpec("auto", _base_url("auto", text))
    if name not in _KINDS:
        close = difflib.get_close_matches(name.lower(), _KINDS, 3, 0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"known engines: {', '.join(_KINDS)}"
        raise SpecError(f"unknown engine {name!r}; {hint}")
    kind = cast(EngineKind, name)
    if kind == "embedded":
        return EngineSpec(kind, target)
    if kind == "scripted":
        if not target:
            raise SpecError("the scripted engine needs a file: scripted:FILE.jsonl")
        return EngineSpec(kind, target)
    if kind == "capture":
        if not target:
            raise SpecError("the capture engine needs a file or a folder: capture:FILE")
        return EngineSpec(kind, target)
    if kind == "vllm-core":
        return EngineSpec(kind, _core_address(target))
    return EngineSpec(kind, _base_url(kind, target or _KNOWN_ADDRESSES.get(kind, "")))


def _core_address(target: str) -> str:
    example = "vllm-core:tcp://127.0.0.1:29550"
    url = target if "://" in target else f"tcp://{target}"
    try:
        parts = urlsplit(url)
        port = parts.port or 0
        valid = parts.scheme == "tcp" and bool(parts.hostname) and 0 < port < 65534 and not parts.path.strip("/")
    except ValueError:
        valid = False
    if not valid or parts.hostname in ("0.0.0.0", "::", "*"):
        raise SpecError(
            f"{target!r} is not an address that vLLM's engine core can connect to; write the one it gets as "
            f"--data-parallel-address and --data-parallel-rpc-port: {example}"
        )
    return url.rstrip("/")


def _base_url(kind: str, target: str) -> str:
    address = _EXAMPLES.get(kind) or _KNOWN_ADDRESSES.get(kind) or "https://host/v1"
    example = address if kind == "auto" else f"{kind}:{address}"
    if not target:
        raise SpecError(f"the {kind} engine needs an address: {example}")
    url = target if "://" in target else f"http://{target}"
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise SpecError(f"{target!r} is not an http(s) address; write it as {example}")
    if parts.query or parts.fragment:
        raise SpecError(f"{target!r}: an engine's address has no query or fragment; write it as {example}")
    return url.rstrip("/")


def create_engine(
    spec: EngineSpec,
    tokenizer: Tokenizer | None,
    *,
    model: str | None = None,
    api_key: str | None = None,
    window: int | None = None,
    switches: Callable[[str], Switches | None] | None = None,
) -> Engine:
    """The engine of a spec, not yet started. `model` is the name the engine knows its model by (asked for where
    None); `api_key` goes to HTTP engines as a bearer token; `tokenizer` may be None only where the engine brings its
    own; `switches` gives what a model's chat template calls thinking."""
    if spec.kind == "embedded":
        from turnwire.engines.embedded.engine import EmbeddedEngine

        return EmbeddedEngine(spec.target or None)
    if spec.kind == "vllm":
        from turnwire.engines.vllm import VLLMEngine

        return VLLMEngine(spec.target, tokenizer=tokenizer, model=model, api_key=api_key, switches=switches)
    if spec.kind == "turnwire" or (spec.kind == "openai" and spec.target.endswith("/responses")):
        from turnwire.engines.upstream.responses import ResponsesEngine

        return ResponsesEngine(spec.target, model=model, api_key=api_key)
    if spec.kind == "anthropic":
        from turnwire.engines.upstream.messages import MessagesEngine

        return MessagesEngine(spec.target, model=model, api_key=api_key)
    if spec.kind == "openai-raw" or spec.kind in CHAT_KINDS:
        from turnwire.engines.upstream.chat import OpenAIEngine

        return OpenAIEngine(
            spec.target,
            model=model,
            api_key=api_key,
            mode="text" if spec.kind == "openai-raw" else "events",
            server=spec.server or spec.kind,
            switches=switches,
        )
    if tokenizer is None:
        raise SpecError(f"the {spec.kind} engine needs the model's tokenizer: give --tokenizer FILE")
    if spec.kind == "completions" and spec.server == "ollama":
        from turnwire.engines.ollama import OllamaEngine

        return OllamaEngine(spec.target, tokenizer, model=model, api_key=api_key, window=window)
    if spec.kind == "completions":
        from turnwire.engines.text import TextEngine

        server = spec.server or "openai"
        return TextEngine(
            spec.target, tokenizer, model=model, api_key=api_key, server=server, window=window, switches=switches
        )
    if spec.kind == "scripted":
        from turnwire.engines.scripted.engine import ScriptedEngine

        return ScriptedEngine(spec.target, tokenizer, window=window)
    if spec.kind == "capture":
        from turnwire.engines.captured.engine import CapturedEngine
        from turnwire.engines.captured.files import load_capture

        return CapturedEngine(load_capture(spec.target), tokenizer, model=model)
    if spec.kind == "vllm-core":
        from turnwire.engines.vllm_core.engine import VLLMCoreEngine

        return VLLMCoreEngine(spec.target, tokenizer)
    if spec.kind == "sglang":
        from turnwire.engines.sglang import SGLangEngine

        return SGLangEngine(spec.target, tokenizer, model=model, api_key=api_key)
    if spec.kind == "trtllm":
        from turnwire.engines.trtllm import TRTLLMEngine

        return TRTLLMEngine(spec.target, tokenizer, model=model, api_key=api_key, window=window)
    from turnwire.engines.llamacpp import LlamaCppEngine

    return LlamaCppEngine(spec.target, tokenizer, model=model, api_key=api_key)
