"""The routing policy that the operator chose: the house's own, a Python file's, or an installed package's.

Promise: what cannot be used is said before any turn is served, with what to change. The file is code of the operator's
and runs with all rights of the gateway.
"""

from __future__ import annotations

import runpy
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from turnwire.engines.pool.routing.policy import Affinity, RoutingPolicy, TokenCost
from turnwire.gateway.settings import SettingsError

__all__ = ["GROUP", "find_policy"]

GROUP = "turnwire.routing_policies"
"""The entry points of packages that bring a policy."""


def find_policy(place: str | None, affinity: Affinity) -> RoutingPolicy:
    """The policy at a place: a file that ends in `.py` and sets `policy`, or the name of an entry point."""
    if place is None:
        return TokenCost(affinity=affinity)
    try:
        found = _in_file(place) if place.endswith(".py") else _installed(place)
    except SettingsError:
        raise
    except Exception as error:
        raise SettingsError(f"routing_policy: {place} failed: {type(error).__name__}: {error}") from error
    if not callable(getattr(found, "choose", None)):
        raise SettingsError(f"routing_policy: {place} gives nothing with a method choose(turn, workers)")
    return cast("RoutingPolicy", found)


def _in_file(place: str) -> object:
    path = Path(place).expanduser()
    if not path.is_file():
        raise SettingsError(f"routing_policy: there is no file {place}")
    found = runpy.run_path(str(path)).get("policy")
    if found is None:
        raise SettingsError(f"routing_policy: {place} sets no variable `policy`")
    return found


def _installed(name: str) -> object:
    for point in entry_points(group=GROUP, name=name):
        made = point.load()
        return made() if isinstance(made, type) else made
    raise SettingsError(f"routing_policy: no installed package has an entry point {name} in {GROUP}")
