"""What `turnwire doctor` finds: the models, how they write, what their templates do, what would break prefix reuse.

Promise: a list of findings, each fine, a warning or an error; each that is not fine says what to do. Only what is
really used is judged: where a model's own server writes the prompts, no template or tokenizer of ours is spoken of.
"""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal

import msgspec

from turnwire.gateway.door.keys import Keyring, KeysError
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import AssemblyError, assemble_models
from turnwire.gateway.setup.config_check import problems
from turnwire.gateway.setup.trying import Trial, try_models
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.prompts.templates.template import ChatTemplate
from turnwire.prompts.templates.traits import KeptThought, TemplateTraits

__all__ = ["Finding", "diagnose", "template_findings"]

State = Literal["fine", "warning", "error"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at. `model` is set where several are served."""

    topic: str
    state: State
    text: str
    fix: str = ""
    model: str = ""


async def diagnose(settings: Settings, *, trial: bool = False) -> list[Finding]:
    """Put the gateway together as `serve` would, look at it, and take it apart again. With `trial` a short conversation
    with a tool call is really held with each model."""
    findings = [*_port(settings), *_keys(settings)]
    wrong = problems(settings, os.environ)
    if wrong:
        return findings + [Finding("settings", "error", problem) for problem in wrong]
    try:
        runtimes = await assemble_models(settings)
    except AssemblyError as error:
        return [*findings, Finding("model", "error", str(error))]
    try:
        for runtime in runtimes:
            name = runtime.id if len(runtimes) > 1 else ""
            findings += [msgspec.structs.replace(each, model=name) for each in await _model_findings(runtime, name)]
        if trial:
            findings += [_tried(each) for each in await try_models(settings, runtimes)]
        return findings
    finally:
        for runtime in runtimes:
            await runtime.engine.close()


async def _model_findings(runtime: ModelRuntime, name: str) -> list[Finding]:
    findings = [*await _engine(runtime), _served(runtime, name)]
    if not runtime.writes_prompts:
        text = "written and counted by the server: no exact replay, no prefix diagnosis"
        return [*findings, Finding("prompts", "fine", text)]
    special = len(runtime.tokenizer.special_tokens)
    findings += [
        Finding("dialect", "fine", runtime.dialect.name),
        Finding("tokenizer", "fine", f"{runtime.tokenizer.vocab_size:,} tokens, {special} of them special"),
        *template_findings(runtime.builder.traits),
        *_clock(runtime),
    ]
    return findings


def _port(settings: Settings) -> list[Finding]:
    if settings.port == 0:
        return []
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
        except OSError as error:
            text = f"{settings.host}:{settings.port} cannot be listened on: {error.strerror}"
            return [Finding("port", "error", text, "stop what runs there, or serve with --port 0")]
    return [Finding("port", "fine", f"{settings.host}:{settings.port} is free")]


def _keys(settings: Settings) -> list[Finding]:
    if not settings.keys:
        return [Finding("keys", "fine", "no keys: everybody on this machine may use the gateway")]
    try:
        ring = Keyring.load(settings.keys)
    except KeysError as error:
        return [Finding("keys", "error", str(error), f"turnwire keys new NAME --file {settings.keys}")]
    now = datetime.now(UTC)
    gone = [key.name for key in ring.keys if key.expired(now)]
    if len(gone) == len(ring.keys):
        text = f"{settings.keys} holds no key that opens anything"
        return [Finding("keys", "error", text, f"turnwire keys new NAME --file {settings.keys}")]
    counted = "1 key" if len(ring.keys) == 1 else f"{len(ring.keys)} keys"
    findings = [Finding("keys", "fine", f"{counted} from {settings.keys}; nobody gets in without one")]
    if gone:
        fix = f"turnwire keys revoke NAME --file {settings.keys}"
        findings.append(Finding("keys", "warning", f"expired: {', '.join(gone)}", fix))
    return findings


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
    # An engine's warning says itself with which flag to start it.
    findings += [Finding("engine", "warning", warning) for warning in info.warnings]
    if not can.cached_tokens and not any("cached tokens" in warning for warning in info.warnings):
        findings.append(Finding("engine", "fine", "it does not report how much of a prompt it had cached"))
    guided = ", ".join(sorted(can.guided)) or "none"
    findings.append(Finding("engine", "fine", f"yields {can.yields}; guided decoding: {guided}"))
    findings.append(Finding("images", "fine", _sight(runtime)))
    return findings


def _sight(runtime: ModelRuntime) -> str:
    if runtime.sees:
        return "seen" if runtime.images is None else _SIGHT[runtime.images.resumes]
    if runtime.engine.capabilities.images and runtime.info.sees is None:
        return "passed on; whether the model sees them is not known"
    return "not seen: a placeholder stands for each, with a note"


_SIGHT = {
    True: "seen, beside prompts that are written here",
    False: "seen; a turn that holds one goes by the server's chat route and is not replayed exactly",
}


def _served(runtime: ModelRuntime, name: str) -> Finding:
    """What the model is; its id is said here where no finding carries it as `name`."""
    title = runtime.profile.title if runtime.profile else "no profile; defaults hold"
    roles = f"; roles: {', '.join(runtime.roles)}" if runtime.roles else ""
    return Finding("model", "fine", f"{'' if name else f'{runtime.id}: '}{title}{roles}")


def template_findings(traits: TemplateTraits) -> list[Finding]:
    """What the template does with tools and with the thoughts of earlier turns."""
    findings = []
    kept: tuple[KeptThought, ...] = traits.kept_with_switch + traits.kept
    every_turn: KeptThought = "text_before"
    if not traits.tools:
        text = "the chat template shows no tools to the model"
        findings.append(Finding("template", "warning", text, "use a template that does: --template FILE"))
    if traits.thinks:
        field = traits.reasoning_field or "nowhere"
        findings.append(Finding("template", "fine", f"reads earlier thoughts from: {field}"))
        findings.append(Finding("template", "fine", f"keeps thoughts of: {', '.join(traits.kept) or 'no turn'}"))
        if traits.history_switch:
            findings.append(Finding("template", "fine", f"keeps all thoughts with {traits.history_switch}"))
        elif traits.reasoning_field is None or every_turn not in kept:
            text = "drops thoughts of earlier user turns, so the prefix breaks at each new question"
            fix = "serve with --history-thinking keep: turns are then spliced exactly"
            findings.append(Finding("template", "warning", text, fix))
        if traits.thinking_off is not None:
            findings.append(Finding("template", "fine", f"thinking is switched off with {traits.thinking_off}"))
    if traits.mid_system is None:
        text = "takes no system message in mid-conversation; such messages are folded into user messages"
        findings.append(Finding("template", "fine", text))
    findings += [Finding("template", "warning", note, "use another template: --template FILE") for note in traits.notes]
    return findings


def _clock(runtime: ModelRuntime) -> list[Finding]:
    """Whether the template writes the time: rendered at two times, an unchanged conversation must not change."""
    template = runtime.builder.template
    if not isinstance(template, ChatTemplate):
        return []
    now = datetime.now(UTC)
    shown = []
    for later in (timedelta(), timedelta(seconds=61), timedelta(days=1)):
        at = now + later
        shown.append(template.with_clock(partial(_at, at)).render([{"role": "user", "content": "Hi"}]))
    if shown[0] != shown[1]:
        text = "writes the time of day into the prompt: no prefix is ever reused"
        return [Finding("template", "error", text, "use a template without a clock: --template FILE")]
    if shown[0] != shown[2]:
        text = "writes the date into the prompt: every prefix breaks at midnight"
        return [Finding("template", "warning", text, "use a template without a date: --template FILE")]
    return []


def _at(moment: datetime) -> datetime:
    return moment


def _tried(trial: Trial) -> Finding:
    return Finding("trial", trial.state, trial.text, trial.fix, trial.model)
