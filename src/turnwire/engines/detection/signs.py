"""How servers are recognised: a table of questions and the answers that give a server away.

Promise: pure. The rows are tried from top to bottom and the first that fits decides, so a server that imitates another
(SGLang answers Ollama's list, several answer `/version`) comes before the one it imitates. No question may cost
anything: `/health` is not among them, since a LiteLLM proxy answers it by asking every model it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

__all__ = ["PATHS", "Answer", "ServerKind", "identify", "owners"]

ServerKind: TypeAlias = Literal[
    "vllm",
    "sglang",
    "trtllm",
    "llamacpp",
    "ollama",
    "lmstudio",
    "nim",
    "litellm",
    "openrouter",
    "turnwire",
    "anthropic",
    "openai",
]


class Answer(msgspec.Struct, frozen=True):
    """What a server said to one GET. `body` is the decoded JSON, else the text."""

    status: int
    body: Any = None
    server: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The object it answered with, empty where it is none or the answer is a refusal."""
        return self.body if self.status == 200 and isinstance(self.body, dict) else {}


Answers: TypeAlias = Mapping[str, Answer]
_NONE = Answer(0)


def owners(answers: Answers) -> set[str]:
    """Who owns the models of `/v1/models`, by its own words."""
    return {str(row.get("owned_by", "")) for row in rows(answers.get("/v1/models", _NONE))}


def rows(answer: Answer) -> list[dict[str, Any]]:
    """The rows of a model list."""
    data = answer.fields.get("data")
    return [row for row in data if isinstance(row, dict) and isinstance(row.get("id"), str)] if data else []


def _has(path: str, *names: str) -> Callable[[Answers], bool]:
    return lambda answers: all(name in answers.get(path, _NONE).fields for name in names)


def _owned(*names: str) -> Callable[[Answers], bool]:
    return lambda answers: bool(owners(answers) & set(names))


def _row_has(*names: str) -> Callable[[Answers], bool]:
    return lambda answers: any(all(name in row for name in names) for row in rows(answers.get("/v1/models", _NONE)))


def _litellm(answers: Answers) -> bool:
    alive = answers.get("/health/liveliness", _NONE)
    models = answers.get("/model/info", _NONE).fields.get("data")
    told = isinstance(models, list) and any(isinstance(row, dict) and "litellm_params" in row for row in models)
    return told or (alive.status == 200 and "I'm alive" in str(alive.body))


def _lmstudio(answers: Answers) -> bool:
    listed = answers.get("/api/v0/models", _NONE)
    return any("max_context_length" in row or "compatibility_type" in row for row in rows(listed))


def _anthropic(answers: Answers) -> bool:
    refused = answers.get("/v1/models", _NONE).body
    return _row_has("type", "display_name")(answers) or (
        # A refusal in Anthropic's shape, of a server that wants its version header or key.
        isinstance(refused, dict) and refused.get("type") == "error" and isinstance(refused.get("error"), dict)
    )


_SIGNS: tuple[tuple[ServerKind, str, Callable[[Answers], bool]], ...] = (
    ("turnwire", "/v1/models", _owned("turnwire")),
    ("llamacpp", "/props", _has("/props", "default_generation_settings")),
    ("sglang", "/get_model_info", _has("/get_model_info", "model_path", "is_generation")),
    ("nim", "/v1/metadata", _has("/v1/metadata", "modelInfo")),
    ("llamacpp", "/v1/models", _owned("llamacpp")),
    ("sglang", "/v1/models", _owned("sglang")),
    ("vllm", "/v1/models", _owned("vllm")),
    ("trtllm", "/v1/models", _owned("tensorrt_llm")),
    ("lmstudio", "/api/v0/models", _lmstudio),
    ("litellm", "/model/info", _litellm),
    ("litellm", "/health/liveliness", _litellm),
    ("ollama", "/api/version", _has("/api/version", "version")),
    ("openrouter", "/v1/models", _row_has("context_length", "pricing")),
    ("anthropic", "/v1/models", _anthropic),
    ("openai", "/v1/models", lambda answers: answers.get("/v1/models", _NONE).status == 200),
)

PATHS: tuple[str, ...] = ("/v1/models", *dict.fromkeys(path for _, path, _ in _SIGNS if path != "/v1/models"))
"""What is asked, each path once."""


def identify(answers: Answers) -> ServerKind | None:
    """Which server gave these answers; None where it is none that is known."""
    return next((kind for kind, _, fits in _SIGNS if fits(answers)), None)
