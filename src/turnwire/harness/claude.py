"""Claude Code on Anthropic Messages: configured by its environment alone.

Promise: no file of the user's own configuration is read or written for the endpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from turnwire.harness.plan import Endpoint, Harness, LaunchPlan, document

__all__ = ["CLAUDE"]


def _plan(endpoint: Endpoint, home: Path, arguments: Sequence[str]) -> LaunchPlan:
    model = endpoint.model
    env = {
        "CLAUDE_CONFIG_DIR": str(home),
        "ANTHROPIC_BASE_URL": endpoint.url,
        "ANTHROPIC_AUTH_TOKEN": endpoint.key,
        # Every name under which the client may ask for a model, so that no side request leaves for another one.
        "ANTHROPIC_MODEL": model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
        "ANTHROPIC_SMALL_FAST_MODEL": model,
        "CLAUDE_CODE_SUBAGENT_MODEL": model,
        # Without these an unknown model is taken to have a window of a million tokens, and never compacts in time.
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(endpoint.window),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(endpoint.max_output),
        # The attribution block differs between conversations and stands first in the prompt: no prefix is shared.
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1",
        "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    return LaunchPlan(
        command=("claude", "--exclude-dynamic-system-prompt-sections", *arguments),
        env=env,
        files={".claude.json": document({"hasCompletedOnboarding": True, "theme": "dark"})},
        unset=("CLAUDECODE", "ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
    )


CLAUDE = Harness("claude", "claude", "npm install -g @anthropic-ai/claude-code", ("messages",), _plan)
