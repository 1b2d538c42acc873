"""Where a turn goes: the policy, and what it knows of sessions, of load and of prompts that are being read."""

from turnwire.engines.pool.routing.policy import Decision, RoutingPolicy, TokenCost, TurnView, WorkerView

__all__ = ["Decision", "RoutingPolicy", "TokenCost", "TurnView", "WorkerView"]
