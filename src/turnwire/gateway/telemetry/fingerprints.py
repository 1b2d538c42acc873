"""Short names for what decides a prompt: template, tokenizer, settings.

Promise: equal fingerprints mean equal prompts for equal conversations; no file is read and no secret goes in.
"""

from __future__ import annotations

import platform
import re
import time
from typing import Any

import msgspec

import turnwire
from turnwire.capture.fingerprint import fingerprint, tokenizer_print
from turnwire.capture.format import FORMAT, CapturedModel, CaptureHead
from turnwire.gateway.settings import Settings
from turnwire.gateway.turns.runtime import ModelRuntime

__all__ = ["capture_head", "open_settings", "template_print"]

_PROMPT_SETTINGS = ("history_thinking", "tool_order", "hoist_system", "content_control", "template_steps")


def template_print(runtime: ModelRuntime) -> str:
    """The template by its text, an encoding of the project's own by its name and version."""
    template = runtime.builder.template
    source = getattr(template, "source", None)
    return fingerprint(source if isinstance(source, str) else [type(template).__name__, turnwire.__version__])


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
        settings=fingerprint(open_settings(settings)),
        models=tuple(_model(runtime, settings) for runtime in runtimes),
    )
