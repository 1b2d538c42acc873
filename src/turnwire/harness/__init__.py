"""Set up and launch real clients against a gateway.

Promise: one small table per client says which files, variables and arguments it needs; the user's own configuration of
that client is never changed.
"""

from turnwire.harness.claude import CLAUDE
from turnwire.harness.codex import CODEX
from turnwire.harness.discovery import DiscoveryError, ListedModel, choose, find_gateway, served_models
from turnwire.harness.openclaw import OPENCLAW
from turnwire.harness.opencode import OPENCODE
from turnwire.harness.pi import PI
from turnwire.harness.plan import KEY_VARIABLE, Endpoint, Harness, LaunchPlan, shell_script
from turnwire.harness.qwen import QWEN
from turnwire.harness.running import announced, running_gateways
from turnwire.harness.session import HarnessMissing, run_plan

__all__ = [
    "HARNESSES",
    "KEY_VARIABLE",
    "DiscoveryError",
    "Endpoint",
    "Harness",
    "HarnessMissing",
    "LaunchPlan",
    "ListedModel",
    "announced",
    "choose",
    "find_gateway",
    "run_plan",
    "running_gateways",
    "served_models",
    "shell_script",
]

HARNESSES: dict[str, Harness] = {harness.name: harness for harness in (CLAUDE, CODEX, OPENCLAW, OPENCODE, QWEN, PI)}
