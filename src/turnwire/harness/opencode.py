"""opencode on any of the three APIs: a config file named by its environment, which opencode puts over the user's own.

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
    small = endpoint.role("background", "haiku")
    config = {
        "autoupdate": False,
        "share": "disabled",
        "provider": {
            "turnwire": {
                "npm": _PACKAGES[endpoint.api],
                "name": "Turnwire",
                "options": {"baseURL": endpoint.v1, "apiKey": f"{{env:{KEY_VARIABLE}}}"},
                "models": {endpoint.model: model, small: {**model, "name": small}},
            }
        },
        "model": f"turnwire/{endpoint.model}",
        "small_model": f"turnwire/{small}",
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


_APART = ("XDG_DATA_HOME", "XDG_STATE_HOME", "OPENCODE_DISABLE_DEFAULT_PLUGINS", "OPENCODE_DISABLE_LSP_DOWNLOAD")
"""What keeps a run apart from the user's own data."""


def _layered(endpoint: Endpoint, home: Path, arguments: Sequence[str]) -> LaunchPlan:
    plan = _plan(endpoint, home, arguments)
    env = {name: value for name, value in plan.env.items() if name not in _APART}
    return LaunchPlan(command=plan.command, env=env, files=plan.files, unset=("OPENCODE_CONFIG_CONTENT",))


OPENCODE = Harness(
    "opencode", "opencode", "npm install -g opencode-ai", ("chat", "messages", "responses"), _plan, _layered
)
