"""The tools on offer, by the names under which a model may call them.

Promise: a tool is found by its own name, and one inside a namespace (`mcp__calc__add`) also by its bare name (`add`) or
its dotted one (`calc.add`), where that can mean no other tool. Iteration gives each tool once, under its own name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from turnwire.turns import Tool

__all__ = ["OfferedTools"]

_BETWEEN = "__"


class OfferedTools(Mapping[str, Tool]):
    """A mapping of names to tools."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = tools
        self._named = {tool.name: tool for tool in tools}
        self._meant: dict[str, Tool | None] | None = None

    def __getitem__(self, name: str) -> Tool:
        tool = self._named.get(name) or self._meant_by(name)
        if tool is None:
            raise KeyError(name)
        return tool

    def _meant_by(self, name: str) -> Tool | None:
        """The tool that another name than its own means."""
        meant = self._meant
        if meant is None:
            meant = self._meant = {}
            for tool in self._tools:
                for other in _other_names(tool):
                    # A name that could mean two tools means none.
                    meant[other] = None if other in meant else tool
        return meant.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)


def _other_names(tool: Tool) -> tuple[str, ...]:
    space = tool.namespace.rstrip("_") if tool.namespace else ""
    if not space and tool.name.startswith("mcp__"):
        space = tool.name.rpartition(_BETWEEN)[0]
    bare = tool.name.removeprefix(space + _BETWEEN)
    if not space or not bare or bare == tool.name:
        return ()
    short = space.removeprefix("mcp__")
    return tuple(dict.fromkeys((bare, f"{space}.{bare}", f"{short}.{bare}", f"{short}{_BETWEEN}{bare}")))
