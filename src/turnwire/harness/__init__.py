"""Set up and launch real clients against a gateway.

Promise: one small table per client says which files, variables and arguments it needs; the user's own configuration of
that client is neither read nor changed.
"""

from .claude import CLAUDE
from .codex import CODEX
from .discovery import DiscoveryError, ServedModel, choose, served_models
from .openclaw import OPENCLAW
from .opencode import OPENCODE
from .pi import PI
from .plan import KEY_VARIABLE, Endpoint, Harness, Plan, shell_script
from .qwen import QWEN
from .session import HarnessMissing, run_plan

__all__ = [
    "HARNESSES",
    "KEY_VARIABLE",
    "DiscoveryError",
    "Endpoint",
    "Harness",
    "HarnessMissing",
    "Plan",
    "ServedModel",
    "choose",
    "run_plan",
    "served_models",
    "shell_script",
]

HARNESSES: dict[str, Harness] = {harness.name: harness for harness in (CLAUDE, CODEX, OPENCLAW, OPENCODE, QWEN, PI)}
