"""Which hosted tools a gateway runs for a request, and how the model sees them.

Promise: the same offer always gives the same tools, so the prompt's prefix holds; what is not on offer is left out by
the decoders and noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from turnwire.turns import HostedUse, Tool

__all__ = [
    "BASH",
    "CODE",
    "FETCH",
    "FILES",
    "NOTHING",
    "OWN",
    "SEARCH",
    "HostedOffer",
    "domains",
    "flat_name",
    "server_tools",
]

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
CODE = Tool(
    name="code_execution",
    description="Run Python code. The answer is what it writes, so print what you want to see.",
    schema={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
)
BASH = Tool(
    name="bash_code_execution",
    description="Run a shell command. The answer is what it writes.",
    schema={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
FILES = Tool(
    name="file_search",
    description="Search the files of this conversation. The answer lists passages with the names of their files.",
    schema={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)
OWN: Mapping[str, str] = {
    SEARCH.name: "query",
    FETCH.name: "url",
    CODE.name: "code",
    BASH.name: "command",
    FILES.name: "query",
}
"""The vendors' own tools that can be run here, and the one argument of each."""


class HostedOffer(msgspec.Struct, frozen=True):
    """`kinds` are the vendors' own tools that are run here (names of `OWN`), `servers` the tools of each MCP server by
    its label, `stores` the vector stores that can be searched."""

    kinds: frozenset[str] = frozenset()
    servers: Mapping[str, tuple[Tool, ...]] = msgspec.field(default_factory=dict)
    stores: frozenset[str] = frozenset()

    @property
    def mark(self) -> str:
        """What tells one offer from another, as decoded tools depend on it."""
        if not (self.kinds or self.servers or self.stores):
            return ""
        tools = (f"{label}/{tool.name}" for label, offered in self.servers.items() for tool in offered)
        return ",".join(sorted((*self.kinds, *tools, *(f"store {store}" for store in self.stores))))


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
