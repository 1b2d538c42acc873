"""Short names for what decides a prompt: template, tokenizer, settings.

Promise: equal fingerprints mean equal prompts for equal conversations, as far as a few hundred characters of every
script can tell; no file is read and no secret goes in.
"""

from __future__ import annotations

import platform
import re
import time
from hashlib import sha256
from typing import Any

import msgspec

import turnwire
from turnwire.capture.format import FORMAT, CapturedModel, CaptureHead
from turnwire.gateway.settings import Settings
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.prompts.prompt import Tokenizer

__all__ = ["capture_head", "open_settings", "template_print", "tokenizer_print"]

_PROBE = (
    "The quick brown fox: 12,345.67 € — naïve café?\n\n\tdef f(x):\n        return {'a': [1, 2]}  # ok\r\n"
    "Γειά σου Κόσμε. Привет, мир! שלום مرحبا नमस्ते 你好，世界。こんにちは 안녕하세요 🙂👩‍💻  <tool_call>\\u0041</tool_call>"
)
_PROMPT_SETTINGS = ("history_thinking", "tool_order", "hoist_system", "content_control", "template_steps")


def _named(value: object) -> str:
    return sha256(msgspec.json.encode(value)).hexdigest()[:32]


def tokenizer_print(tokenizer: Tokenizer) -> str:
    """The tokenizer by its size, its special tokens and how it cuts a text of many scripts."""
    return _named([tokenizer.vocab_size, sorted(tokenizer.special_tokens.items()), tokenizer.encode(_PROBE)])


def template_print(runtime: ModelRuntime) -> str:
    """The template by its text, an encoding of the project's own by its name and version."""
    template = runtime.builder.template
    source = getattr(template, "source", None)
    return _named(source if isinstance(source, str) else [type(template).__name__, turnwire.__version__])


def open_settings(settings: Settings) -> dict[str, Any]:
    """The settings without secrets."""
    shown: dict[str, Any] = msgspec.to_builtins(settings)
    if shown.get("seal_key"):
        shown["seal_key"] = "(set)"
    if isinstance(shown.get("store"), str):
        shown["store"] = re.sub(r"//[^/@]*@", "//(credentials)@", shown["store"])
    return shown


def _model(runtime: ModelRuntime, settings: Settings) -> CapturedModel:
    return CapturedModel(
        id=runtime.id,
        aliases=runtime.aliases,
        engine=runtime.info.name,
        engine_version=runtime.info.version,
        dialect=runtime.dialect.name,
        window=runtime.window,
        template=template_print(runtime),
        tokenizer=tokenizer_print(runtime.tokenizer),
        capabilities=msgspec.to_builtins(runtime.engine.capabilities),
        settings={name: getattr(settings, name) for name in _PROMPT_SETTINGS},
    )


def capture_head(settings: Settings, runtimes: list[ModelRuntime]) -> CaptureHead:
    """The first line of a capture of this gateway."""
    return CaptureHead(
        format=FORMAT,
        turnwire=turnwire.__version__,
        python=platform.python_version(),
        started=round(time.time(), 3),
        settings=_named(open_settings(settings)),
        models=tuple(_model(runtime, settings) for runtime in runtimes),
    )
