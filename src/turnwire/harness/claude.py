"""Claude Code on Anthropic Messages: configured by its environment, over the user's own settings or apart from them.

Promise: every name under which the client may ask for a model leads to the gateway; the user's own hooks, MCP servers,
history and sessions stay his where he wants them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from turnwire.harness.plan import Endpoint, Harness, LaunchPlan, document

__all__ = ["CLAUDE"]

_UNSET = ("CLAUDECODE", "ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX")


def _variables(endpoint: Endpoint) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": endpoint.url,
        # Every tier gets the model that has its role, and no side request leaves for another one.
        "ANTHROPIC_MODEL": endpoint.model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": endpoint.role("opus"),
        "ANTHROPIC_DEFAULT_SONNET_MODEL": endpoint.role("sonnet"),
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": endpoint.role("haiku", "background"),
        "ANTHROPIC_SMALL_FAST_MODEL": endpoint.role("background", "haiku"),
        "CLAUDE_CODE_SUBAGENT_MODEL": endpoint.role("subagent"),
        # Without these an unknown model is taken to have a window of a million tokens, and never compacts in time.
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(endpoint.window),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(endpoint.max_output),
        # The attribution block differs between conversations and comes first in the prompt: no prefix is shared.
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1",
        "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def _plan(endpoint: Endpoint, home: Path, arguments: Sequence[str]) -> LaunchPlan:
    return LaunchPlan(
        command=("claude", "--exclude-dynamic-system-prompt-sections", *arguments),
        env={
            "CLAUDE_CONFIG_DIR": str(home),
            "ANTHROPIC_AUTH_TOKEN": endpoint.key,
            **_variables(endpoint),
        },
        files={".claude.json": document({"hasCompletedOnboarding": True, "theme": "dark"})},
        unset=_UNSET,
    )


def _layered(endpoint: Endpoint, home: Path, arguments: Sequence[str]) -> LaunchPlan:
    """The user's own settings may set variables as well, and would win: a file of settings goes before them."""
    settings = home / "settings.json"
    return LaunchPlan(
        command=("claude", "--settings", str(settings), "--exclude-dynamic-system-prompt-sections", *arguments),
        env={"ANTHROPIC_AUTH_TOKEN": endpoint.key, **_variables(endpoint)},
        files={settings.name: document({"env": _variables(endpoint)})},
        unset=_UNSET,
    )


CLAUDE = Harness("claude", "claude", "npm install -g @anthropic-ai/claude-code", ("messages",), _plan, _layered)
