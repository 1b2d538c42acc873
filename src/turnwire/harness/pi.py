"""pi on any of the three APIs: a models file in a throw-away agent folder.

Promise: nothing but the plan's own folder is written; the key is only in the environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from turnwire.harness.plan import KEY_VARIABLE, Endpoint, Harness, LaunchPlan, document

__all__ = ["PI"]

_APIS = {"chat": "openai-completions", "messages": "anthropic-messages", "responses": "openai-responses"}


def _plan(endpoint: Endpoint, home: Path, arguments: Sequence[str]) -> LaunchPlan:
    model = {
        "id": endpoint.model,
        "reasoning": True,
        "contextWindow": endpoint.window,
        "maxTokens": endpoint.max_output,
    }
    provider = {
        "baseUrl": endpoint.url if endpoint.api == "messages" else endpoint.v1,
        "api": _APIS[endpoint.api],
        "apiKey": f"${KEY_VARIABLE}",
        "models": [model],
    }
    return LaunchPlan(
        command=("pi", "--model", f"turnwire/{endpoint.model}", *arguments),
        env={"PI_CODING_AGENT_DIR": str(home), "PI_OFFLINE": "1", KEY_VARIABLE: endpoint.key},
        files={"models.json": document({"providers": {"turnwire": provider}})},
    )


PI = Harness("pi", "pi", "npm install -g @earendil-works/pi-coding-agent", ("chat", "messages", "responses"), _plan)
