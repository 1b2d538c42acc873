"""What `turnwire doctor` finds: the model, how it writes, what its template does, and what would break prefix reuse.

Promise: a list of findings, each fine, a warning or an error, and each that is not fine says what to do.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from turnwire.gateway.door.keys import Keyring, KeysError
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import AssemblyError, assemble
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.prompts.templates.traits import KeptThought, TemplateTraits

__all__ = ["Finding", "diagnose", "template_findings"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    topic: str
    state: Literal["fine", "warning", "error"]
    text: str
    fix: str = ""


async def diagnose(settings: Settings) -> list[Finding]:
    """Put the gateway together as `serve` would, look at it, and take it apart again."""
    findings = _keys(settings)
    try:
        runtime = await assemble(settings)
    except AssemblyError as error:
        return [*findings, Finding("model", "error", str(error), "change what it says, then run doctor again")]
    try:
        return [*findings, *await _engine(runtime), *_model(runtime), *template_findings(runtime.builder.traits)]
    finally:
        await runtime.engine.close()


def _keys(settings: Settings) -> list[Finding]:
    if not settings.keys:
        return [Finding("keys", "fine", "no keys: everybody on this machine may use the gateway", "")]
    try:
        Keyring.load(settings.keys)
    except KeysError as error:
        return [Finding("keys", "error", str(error), "make a key with: turnwire keys new NAME")]
    return [Finding("keys", "fine", f"keys from {settings.keys}; nobody gets in without one")]


async def _engine(runtime: ModelRuntime) -> list[Finding]:
    info, can = runtime.info, runtime.engine.capabilities
    version = f" {info.version}" if info.version else ""
    reachable = await runtime.engine.health()
    findings = [
        Finding(
            "engine",
            "fine" if reachable else "error",
            f"{info.name}{version}, window {runtime.window:,} tokens",
            "" if reachable else "start the engine, or check its address",
        )
    ]
    findings += [Finding("engine", "warning", warning, "set that flag") for warning in info.warnings]
    if not can.cached_tokens:
        text = "the engine does not tell how much of a prompt it had cached"
        findings.append(Finding("engine", "warning", text, "turn on cached-token reporting (see docs/engines.md)"))
    guided = ", ".join(sorted(can.guided)) or "none"
    findings.append(Finding("engine", "fine", f"yields {can.yields}; guided decoding: {guided}"))
    return findings


def _model(runtime: ModelRuntime) -> list[Finding]:
    profile = runtime.profile
    known = f"profile {profile.name}" if profile else "no profile; the template decides"
    special = len(runtime.tokenizer.special_tokens)
    return [
        Finding("model", "fine", f"{runtime.id} ({known})"),
        Finding("dialect", "fine", runtime.dialect.name),
        Finding("tokenizer", "fine", f"{runtime.tokenizer.vocab_size:,} tokens, {special} of them special"),
    ]


def template_findings(traits: TemplateTraits) -> list[Finding]:
    """What the template does with tools and with the thoughts of earlier turns."""
    findings = []
    kept: tuple[KeptThought, ...] = traits.kept_with_switch + traits.kept
    every_turn: KeptThought = "text_before"
    if not traits.tools:
        findings.append(
            Finding("template", "warning", "the chat template shows no tools to the model", "use a template that does")
        )
    if traits.thinks:
        field = traits.reasoning_field or "nowhere"
        findings.append(Finding("template", "fine", f"reads earlier thoughts from: {field}"))
        findings.append(Finding("template", "fine", f"keeps thoughts of: {', '.join(traits.kept) or 'no turn'}"))
        if traits.history_switch:
            findings.append(Finding("template", "fine", f"keeps all thoughts with {traits.history_switch}"))
        elif traits.reasoning_field is None or every_turn not in kept:
            text = "drops thoughts of earlier user turns, so the prefix breaks at each new question"
            findings.append(
                Finding(
                    "template", "warning", text, "serve with --history-thinking keep: turns are then spliced exactly"
                )
            )
        if traits.thinking_off is not None:
            findings.append(Finding("template", "fine", f"thinking is switched off with {traits.thinking_off}"))
    if traits.mid_system is None:
        text = "takes no system message in mid-conversation; such messages are folded into user messages"
        findings.append(Finding("template", "fine", text))
    findings += [Finding("template", "warning", note) for note in traits.notes]
    return findings
