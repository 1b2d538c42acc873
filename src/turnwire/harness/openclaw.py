"""OpenClaw on any of the three APIs: a config file and a state folder named by its environment.

Promise: nothing but the plan's own folder is written; the key is only in the environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from turnwire.harness.plan import KEY_VARIABLE, Endpoint, Harness, LaunchPlan, document

__all__ = ["OPENCLAW"]

_APIS = {"messages": "anthropic-messages", "responses": "openai-responses", "chat": "openai-completions"}


def _plan(endpoint: Endpoint, home: Path, arguments: Sequence[str]) -> LaunchPlan:
    model = {
        "id": endpoint.model,
        "name": endpoint.model,
        "reasoning": True,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": endpoint.window,
        "maxTokens": endpoint.max_output,
    }
    provider = {
        "baseUrl": endpoint.url if endpoint.api == "messages" else endpoint.v1,
        "apiKey": f"${{{KEY_VARIABLE}}}",
        "api": _APIS[endpoint.api],
        "models": [model],
    }
    config = {
        "models": {"mode": "merge", "providers": {"turnwire": provider}},
        "agents": {"defaults": {"model": {"primary": f"turnwire/{endpoint.model}"}}},
    }
    return LaunchPlan(
        command=("openclaw", *arguments),
        env={
            "OPENCLAW_CONFIG_PATH": str(home / "openclaw.json"),
            "OPENCLAW_STATE_DIR": str(home / "state"),
            KEY_VARIABLE: endpoint.key,
        },
        files={"openclaw.json": document(config)},
    )


OPENCLAW = Harness("openclaw", "openclaw", "npm install -g openclaw", ("messages", "responses", "chat"), _plan)
