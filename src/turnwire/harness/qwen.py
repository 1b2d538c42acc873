"""Qwen Code on any of the three APIs: a settings file in a throw-away QWEN_HOME.

Promise: nothing but the plan's own folder is written; the key is only in the environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from turnwire.harness.plan import KEY_VARIABLE, Endpoint, Harness, LaunchPlan, document

__all__ = ["QWEN"]

_APIS = {"chat": "openai", "messages": "anthropic", "responses": "openai-responses"}


def _plan(endpoint: Endpoint, home: Path, arguments: Sequence[str]) -> LaunchPlan:
    protocol = _APIS[endpoint.api]
    model = {
        "id": endpoint.model,
        "name": endpoint.model,
        "baseUrl": endpoint.url if endpoint.api == "messages" else endpoint.v1,
        "envKey": KEY_VARIABLE,
        "generationConfig": {
            "contextWindowSize": endpoint.window,
            "samplingParams": {"max_tokens": endpoint.max_output},
        },
    }
    settings = {
        "modelProviders": {protocol: [model]},
        "security": {"auth": {"selectedType": protocol}},
        "model": {"name": endpoint.model},
        "telemetry": {"enabled": False},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    return LaunchPlan(
        command=("qwen", "--auth-type", protocol, "--model", endpoint.model, *arguments),
        env={"QWEN_HOME": str(home), KEY_VARIABLE: endpoint.key},
        files={"settings.json": document(settings)},
        unset=("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    )


QWEN = Harness("qwen", "qwen", "npm install -g @qwen-code/qwen-code", ("chat", "messages", "responses"), _plan)
