"""Asks a server what it is and what it serves.

Promise: a handful of short GETs (and for Ollama one POST about the model in question), each bounded in time and size; a
server that does not answer at all, or refuses our key, is an EngineError that says so.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.engines.detection.signs import PATHS, Answer, ServerKind, identify, rows
from turnwire.engines.failures import refusal
from turnwire.engines.http.connections import Address
from turnwire.engines.http.questions import Questions, Reply
from turnwire.engines.interface import EngineError
from turnwire.unreadable import UNREADABLE

__all__ = ["ServerFacts", "ServerModel", "find_server"]

_NONE = Answer(0)
_SECONDS = 8.0
_LARGEST = 8 * 1024 * 1024


class ServerModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model of a server. `sources` are places its tokenizer and template may be read from, likeliest first: paths
    of the server's machine and hub ids. `sees` says whether it takes images, where the server tells that."""

    id: str
    window: int | None = None
    sources: tuple[str, ...] = ()
    chats: bool = True
    sees: bool | None = None


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. `base` is the address without `/v1`; `template` is its chat template, where it shows one."""

    kind: ServerKind
    base: str
    models: tuple[ServerModel, ...] = ()
    template: str | None = None
    version: str | None = None


async def find_server(
    url: str, api_key: str | None = None, *, kind: ServerKind | None = None, model: str | None = None
) -> ServerFacts:
    """Ask the server at an address, with or without `/v1` at its end. `kind` is what the operator says it is, `model`
    the one in question, where that is known."""
    base = url.rstrip("/").removesuffix("/v1")
    headers = {"Accept": "application/json"}
    if api_key:
        headers |= {"Authorization": f"Bearer {api_key}", "x-api-key": api_key}
    headers["anthropic-version"] = "2023-06-01"
    probe = _Probe(Questions(Address(base), headers), base, model)
    answers = await probe.all(PATHS)
    listed = answers["/v1/models"]
    kind = kind or identify(answers)
    if listed.status in (401, 403) and kind in (None, "anthropic"):
        raise refusal("the server", listed.status, msgspec.json.encode(listed.body))
    if kind is None:
        raise EngineError(
            "invalid_request",
            f"{base} answers, but not as any server that is known here (GET /v1/models: HTTP {listed.status}). "
            "Name its kind, as in openai:URL",
        )
    return await _FACTS.get(kind, _plain)(probe, kind, answers)


class _Probe:
    """Short questions to one server."""

    def __init__(self, questions: Questions, base: str, model: str | None) -> None:
        self._questions = questions
        self.base = base
        self.model = model

    async def all(self, paths: tuple[str, ...]) -> dict[str, Answer]:
        """The answers to several questions. Only a server that answers none of them is unreachable."""
        found = await asyncio.gather(*(self.get(path) for path in paths), return_exceptions=True)
        answers = {path: answer for path, answer in zip(paths, found, strict=True) if isinstance(answer, Answer)}
        if "/v1/models" not in answers:
            failure = next((each for each in found if isinstance(each, BaseException)), None)
            if not answers:
                raise EngineError("unreachable", f"nothing answers at {self.base} ({_words(failure)})")
            answers["/v1/models"] = Answer(0)
        return answers

    async def get(self, path: str) -> Answer:
        return _answer(await self._questions.ask(path, seconds=_SECONDS, most=_LARGEST))

    async def post(self, path: str, body: Mapping[str, object]) -> Answer:
        data = msgspec.json.encode(body)
        try:
            return _answer(await self._questions.ask(path, data, seconds=_SECONDS, most=_LARGEST))
        except OSError:
            return Answer(0)


def _answer(reply: Reply) -> Answer:
    try:
        body: Any = msgspec.json.decode(reply.body)
    except UNREADABLE:
        body = reply.body[:1000].decode("utf-8", "replace")
    return Answer(reply.status, body, reply.headers.get("server", ""))


def _words(error: BaseException | None) -> str:
    return (str(error) or type(error).__name__) if error is not None else "no answer"


# ------------------------------------------------------------------------------------------- what each server tells


def _number(row: Mapping[str, Any], *names: str) -> int | None:
    """The first of the fields that is a positive whole number."""
    for name in names:
        value = row.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _texts(*values: object) -> tuple[str, ...]:
    """The values that are text, each once."""
    return tuple(dict.fromkeys(value for value in values if isinstance(value, str) and value))


def _seen(row: Mapping[str, Any]) -> bool | None:
    """Whether a model takes images, by what its row says: OpenRouter and llama-server name its architecture's inputs,
    Turnwire its own."""
    told = row.get("architecture")
    inputs = (told if isinstance(told, dict) else row).get("input_modalities")
    return "image" in inputs if isinstance(inputs, list) else None


async def _plain(probe: _Probe, kind: ServerKind, answers: Mapping[str, Answer]) -> ServerFacts:
    """Servers that say all they say in `/v1/models`."""
    models = tuple(
        ServerModel(
            id=row["id"],
            window=_number(row, "max_model_len", "context_length", "context_window", "max_input_tokens"),
            sources=_texts(row.get("root"), row["id"]),
            sees=_seen(row),
        )
        for row in rows(answers["/v1/models"])
    )
    return ServerFacts(kind=kind, base=probe.base, models=models)


async def _sglang(probe: _Probe, kind: ServerKind, answers: Mapping[str, Answer]) -> ServerFacts:
    info = answers.get("/get_model_info", _NONE).fields
    facts = await _plain(probe, kind, answers)
    told = _texts(info.get("tokenizer_path"), info.get("model_path"))
    models = tuple(msgspec.structs.replace(model, sources=_texts(*told, *model.sources)) for model in facts.models)
    return msgspec.structs.replace(facts, models=models)


async def _llamacpp(probe: _Probe, kind: ServerKind, answers: Mapping[str, Answer]) -> ServerFacts:
    props = answers.get("/props", _NONE).fields
    window = _number(props.get("default_generation_settings") or {}, "n_ctx")
    path, alias = props.get("model_path"), props.get("model_alias")
    listed = [row["id"] for row in rows(answers["/v1/models"])]
    name = alias or (listed[0] if listed else path)
    modalities = props.get("modalities")
    model = ServerModel(
        id=str(name or "model"),
        window=window,
        sources=_texts(path, alias, *listed),
        sees=bool(modalities.get("vision")) if isinstance(modalities, dict) else None,
    )
    template = props.get("chat_template")
    return ServerFacts(
        kind=kind, base=probe.base, models=(model,), template=template if isinstance(template, str) else None
    )


async def _ollama(probe: _Probe, kind: ServerKind, answers: Mapping[str, Answer]) -> ServerFacts:
    tags, running = await asyncio.gather(probe.get("/api/tags"), probe.get("/api/ps"))
    loaded = {
        row.get("name"): _number(row, "context_length")
        for row in running.fields.get("models") or ()
        if isinstance(row, dict)
    }
    models = []
    for row in tags.fields.get("models") or ():
        if not isinstance(row, dict) or not isinstance(row.get("name"), str):
            continue
        can = row.get("capabilities")
        chats = "completion" in can if isinstance(can, list) else "embed" not in row["name"]
        sees = "vision" in can if isinstance(can, list) else None
        models.append(ServerModel(id=row["name"], window=loaded.get(row["name"]), chats=chats, sees=sees))
    able = [model for model in models if model.chats]
    wanted = probe.model or (able[0].id if len(able) == 1 else None)
    models = [await _ollama_shown(probe, model) if model.id == wanted else model for model in models]
    return ServerFacts(
        kind=kind,
        base=probe.base,
        models=tuple(models),
        version=str(answers.get("/api/version", _NONE).fields.get("version") or "") or None,
    )


async def _ollama_shown(probe: _Probe, model: ServerModel) -> ServerModel:
    """The model with what `/api/show` tells. Its window is the one that its parameters set: what the architecture could
    hold is not what Ollama loads. Its file is the one that its Modelfile begins from; where that is on another machine,
    a name at the hub or the repository that the file says it was made of has the same tokenizer."""
    shown = (await probe.post("/api/show", {"model": model.id})).fields
    window = re.search(r"^num_ctx\s+(\d+)", str(shown.get("parameters") or ""), re.MULTILINE)
    file = re.search(r"^FROM\s+(/\S+|[A-Za-z]:\\\S+)", str(shown.get("modelfile") or ""), re.MULTILINE)
    facts = shown.get("model_info")
    origin = facts.get("general.base_model.0.repo_url") if isinstance(facts, dict) else None
    hub = re.match(r"(?:hf\.co|huggingface\.co)/([^/:]+/[^/:]+)", model.id)
    base = re.fullmatch(r"https://huggingface\.co/([^/]+/[^/]+?)/?", str(origin or ""))
    return msgspec.structs.replace(
        model,
        window=model.window or (int(window.group(1)) if window else None),
        sources=tuple(found.group(1) for found in (file, hub, base) if found),
    )


async def _lmstudio_facts(probe: _Probe, kind: ServerKind, answers: Mapping[str, Answer]) -> ServerFacts:
    listed = rows(answers.get("/api/v0/models", _NONE))
    ready = [row for row in listed if row.get("state") == "loaded"] or listed
    models = tuple(
        ServerModel(
            id=row["id"],
            window=_number(row, "loaded_context_length", "max_context_length"),
            chats=row.get("type") in ("llm", "vlm", None),
            sees=row["type"] == "vlm" if isinstance(row.get("type"), str) else None,
        )
        for row in ready
    )
    return ServerFacts(kind=kind, base=probe.base, models=models)


_FACTS = {"sglang": _sglang, "llamacpp": _llamacpp, "ollama": _ollama, "lmstudio": _lmstudio_facts}
