"""Which hosted tools a gateway runs for a request, and how the model sees them.

Promise: the same offer always gives the same tools, so the prompt's prefix holds; what is not on offer is left out by
the decoders and noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from turnwire.turns import HostedUse, Tool

__all__ = ["FETCH", "NOTHING", "SEARCH", "HostedOffer", "domains", "flat_name", "server_tools"]

SEARCH = Tool(
    name="web_search",
    description="Search the web. The answer lists pages with their titles, addresses and what they say.",
    schema={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)
FETCH = Tool(
    name="web_fetch",
    description="Read the page at an address.",
    schema={"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
)


class HostedOffer(msgspec.Struct, frozen=True):
    """`kinds` are the vendors' own tools that are run here (`web_search`, `web_fetch`), `servers` the tools of each MCP
    server by its label."""

    kinds: frozenset[str] = frozenset()
    servers: Mapping[str, tuple[Tool, ...]] = msgspec.field(default_factory=dict)

    @property
    def mark(self) -> str:
        """What tells one offer from another, as decoded tools depend on it."""
        tools = (f"{label}/{tool.name}" for label, offered in self.servers.items() for tool in offered)
        return ",".join(sorted((*self.kinds, *tools)))


NOTHING = HostedOffer()
"""The offer of a gateway that runs no tools."""


def flat_name(server: str, tool: str) -> str:
    """The one name under which the model sees a tool of an MCP server."""
    return f"{server.rstrip('_')}__{tool}"


def server_tools(offer: HostedOffer, label: str, allowed: Sequence[str] | None) -> list[tuple[Tool, HostedUse]]:
    """The tools of an MCP server as the model sees them; with `allowed` only those of these names."""
    return [
        (
            msgspec.structs.replace(tool, name=flat_name(label, tool.name)),
            HostedUse(kind="mcp", server=label, tool=tool.name),
        )
        for tool in offer.servers.get(label, ())
        if allowed is None or tool.name in allowed
    ]


def domains(value: object) -> tuple[str, ...]:
    """A list of domains as a request states it; anything else is none."""
    if not isinstance(value, list):
        return ()
    return tuple(each.lower() for each in value[:100] if isinstance(each, str) and each)
