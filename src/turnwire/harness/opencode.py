"""opencode on any of the three APIs: a config file named by its environment.

Promise: nothing but the plan's own folder is written; the key is only in the environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from turnwire.harness.plan import KEY_VARIABLE, Endpoint, Harness, LaunchPlan, document

__all__ = ["OPENCODE"]

_PACKAGES = {"chat": "@ai-sdk/openai-compatible", "messages": "@ai-sdk/anthropic", "responses": "@ai-sdk/openai"}


def _plan(endpoint: Endpoint, home: Path, arguments: Sequence[str]) -> LaunchPlan:
    model = {
        "name": endpoint.model,
        "reasoning": True,
        "tool_call": True,
        "limit": {"context": endpoint.window, "output": endpoint.max_output},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "provider": {
            "turnwire": {
                "npm": _PACKAGES[endpoint.api],
                "name": "Turnwire",
                "options": {"baseURL": endpoint.v1, "apiKey": f"{{env:{KEY_VARIABLE}}}"},
                "models": {endpoint.model: model},
            }
        },
        "model": f"turnwire/{endpoint.model}",
        "small_model": f"turnwire/{endpoint.model}",
    }
    return LaunchPlan(
        command=("opencode", *arguments),
        env={
            "OPENCODE_CONFIG": str(home / "opencode.json"),
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_STATE_HOME": str(home / "state"),
            KEY_VARIABLE: endpoint.key,
        },
        files={"opencode.json": document(config)},
        unset=("OPENCODE_CONFIG_CONTENT", "OPENCODE_CONFIG_DIR"),
    )


OPENCODE = Harness("opencode", "opencode", "npm install -g opencode-ai", ("chat", "messages", "responses"), _plan)
