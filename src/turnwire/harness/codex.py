"""Codex on OpenAI Responses: a throw-away CODEX_HOME whose provider asks the gateway for the model catalog.

Promise: the user's own CODEX_HOME is left alone; the key is only in the environment.
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
web_search = "disabled"
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


def _plan(endpoint: Endpoint, home: Path, arguments: Sequence[str]) -> LaunchPlan:
    config = _CONFIG.format(
        model=json.dumps(endpoint.model),
        base_url=json.dumps(endpoint.v1),
        print_key=json.dumps(f'printf %s "${KEY_VARIABLE}"'),
    )
    return LaunchPlan(
        command=("codex", *arguments),
        env={"CODEX_HOME": str(home), KEY_VARIABLE: endpoint.key},
        files={"config.toml": config},
        unset=("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    )


CODEX = Harness("codex", "codex", "npm install -g @openai/codex", ("responses",), _plan)
