"""Set up and launch real clients against a gateway.

Promise: one small table per client says which files, variables and arguments it needs; the user's own configuration of
that client is neither read nor changed.
"""

from turnwire.harness.claude import CLAUDE
from turnwire.harness.codex import CODEX
from turnwire.harness.discovery import DiscoveryError, ListedModel, choose, served_models
from turnwire.harness.openclaw import OPENCLAW
from turnwire.harness.opencode import OPENCODE
from turnwire.harness.pi import PI
from turnwire.harness.plan import KEY_VARIABLE, Endpoint, Harness, LaunchPlan, shell_script
from turnwire.harness.qwen import QWEN
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
    "choose",
    "run_plan",
    "served_models",
    "shell_script",
]

HARNESSES: dict[str, Harness] = {harness.name: harness for harness in (CLAUDE, CODEX, OPENCLAW, OPENCODE, QWEN, PI)}
