"""Codex on OpenAI Responses: a provider that asks the gateway for the model catalog, over the user's own config or in a
CODEX_HOME apart from it.

Promise: no file of the user's own is written; the key is only in the environment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from turnwire.harness.plan import KEY_VARIABLE, Endpoint, Harness, LaunchPlan

__all__ = ["CODEX"]

# A provider with command auth makes Codex read the served catalog; with a plain key it would fall back to a generic
# record. The name must not be "OpenAI": that name switches on a compaction of its own.
_CONFIG = """\
model = {model}
model_provider = "turnwire"
web_search = {web_search}
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
plugins = false
apps = false

[model_providers.turnwire]
name = "Turnwire"
base_url = {base_url}
wire_api = "responses"

[model_providers.turnwire.auth]
command = "sh"
args = ["-c", {print_key}]
"""


_PRINT_KEY = f'printf %s "${KEY_VARIABLE}"'


def _web_search(endpoint: Endpoint) -> str:
    """Whether the hosted search is offered: only where the gateway runs it."""
    return "live" if endpoint.searches else "disabled"


def _plan(endpoint: Endpoint, home: Path, arguments: Sequence[str]) -> LaunchPlan:
    config = _CONFIG.format(
        model=json.dumps(endpoint.model),
        base_url=json.dumps(endpoint.v1),
        print_key=json.dumps(_PRINT_KEY),
        web_search=json.dumps(_web_search(endpoint)),
    )
    return LaunchPlan(
        command=("codex", *arguments),
        env={"CODEX_HOME": str(home), KEY_VARIABLE: endpoint.key},
        files={"config.toml": config},
        unset=("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    )


def _layered(endpoint: Endpoint, home: Path, arguments: Sequence[str]) -> LaunchPlan:
    """The same as overrides on the command line, which go before the user's own config."""
    auth = f'{{command="sh",args=["-c",{json.dumps(_PRINT_KEY)}]}}'
    provider = f'{{name="Turnwire",base_url={json.dumps(endpoint.v1)},wire_api="responses",auth={auth}}}'
    overrides = {
        "model": json.dumps(endpoint.model),
        "model_provider": '"turnwire"',
        "model_providers.turnwire": provider,
        "web_search": json.dumps(_web_search(endpoint)),
    }
    if "review" in endpoint.roles:
        overrides["review_model"] = json.dumps(endpoint.role("review"))
    flags = [part for name, value in overrides.items() for part in ("-c", f"{name}={value}")]
    return LaunchPlan(
        command=("codex", *flags, *arguments),
        env={KEY_VARIABLE: endpoint.key},
        unset=("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    )


CODEX = Harness("codex", "codex", "npm install -g @openai/codex", ("responses",), _plan, _layered)
