"""Tool definitions of a Responses request, as the model sees them and as the client wants its calls back.

Promise: every tool the client itself can run reaches the model under a name that is unique in the request, and a call
by that name finds its way back to the client's own words (`name`, `namespace`, kind of item). What only OpenAI's
servers could run is offered where the gateway runs it, else left out and noted. Only a search in vector stores that
are not here is refused, as the vendor does. The same definitions always give the same names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from turnwire.conventions import raw_input_schema
from turnwire.protocols.fields.body import invalid
from turnwire.protocols.fields.decoded import PartNote
from turnwire.protocols.fields.members import MEMBERS, member_notes
from turnwire.protocols.hosted.offer import CODE, FILES, NOTHING, SEARCH, HostedOffer, domains, server_tools
from turnwire.turns import HostedUse, Tool

__all__ = ["CallKind", "Origin", "Toolbox", "flat_name"]

CallKind: TypeAlias = Literal["function", "custom", "tool_search"]

HOSTED = frozenset(
    {
        "apply_patch",
        "code_interpreter",
        "computer",
        "computer_use",
        "computer_use_preview",
        "file_search",
        "image_generation",
        "local_shell",
        "mcp",
        "programmatic_tool_calling",
        "shell",
        "web_search",
        "web_search_2025_08_26",
        "web_search_preview",
        "web_search_preview_2025_03_11",
    }
)
"""Tool types that carry no schema a model could be shown: OpenAI's own servers or trained-in formats run them."""


class Origin(msgspec.Struct, frozen=True):
    """What the client calls a tool: the way back from the model's name."""

    name: str
    namespace: str | None = None
    kind: CallKind = "function"


def flat_name(name: str, namespace: str | None) -> str:
    """The one name under which the model sees a namespaced tool."""
    return f"{namespace.rstrip('_')}__{name}" if namespace else name


class PackedTools(msgspec.Struct, frozen=True):
    """All that a toolbox holds, as a value that can be sent to another process."""

    tools: list[Tool]
    hosted: dict[str, HostedUse]
    client_search: bool
    origins: dict[str, Origin]
    names: list[tuple[str | None, str, str]]


class Toolbox:
    """The tools of one request. `add` reads definitions in the order given; `origin` and `name_of` translate."""

    def __init__(self, offer: HostedOffer = NOTHING) -> None:
        self.tools: list[Tool] = []
        self.hosted: dict[str, HostedUse] = {}
        self._offer_of_gateway = offer
        self.client_search = False
        self._origins: dict[str, Origin] = {}
        self._names: dict[tuple[str | None, str], str] = {}
        self._notes: list[PartNote] = []

    def copy(self) -> Toolbox:
        """The same tools in a box of its own, so that what one request adds does not reach another."""
        other = Toolbox(self._offer_of_gateway)
        other.tools = list(self.tools)
        other.hosted = dict(self.hosted)
        other.client_search = self.client_search
        other._origins = dict(self._origins)
        other._names = dict(self._names)
        return other

    def packed(self) -> PackedTools:
        """All that it holds."""
        names = [(namespace, name, flat) for (namespace, name), flat in self._names.items()]
        return PackedTools(self.tools, self.hosted, self.client_search, self._origins, names)

    @classmethod
    def unpacked(cls, packed: PackedTools, offer: HostedOffer = NOTHING) -> Toolbox:
        """The toolbox that was packed."""
        box = cls(offer)
        box.tools, box.hosted, box.client_search = packed.tools, packed.hosted, packed.client_search
        box._origins = packed.origins
        box._names = {(namespace, name): flat for namespace, name, flat in packed.names}
        return box

    def add(self, definitions: Any, *, deferred: bool = False) -> tuple[tuple[str, ...], tuple[PartNote, ...]]:
        """Take in a list of tool definitions. Gives the model's names of those that it will see, and notes; paths in
        notes and failures start at the list."""
        if definitions is None:
            return (), ()
        if not isinstance(definitions, list):
            raise invalid("", "must be a list of tools")
        self._notes = []
        added: list[str] = []
        for index, definition in enumerate(definitions):
            place = f"[{index}]"
            if not isinstance(definition, dict):
                raise invalid(place, "must be an object")
            self._notes += member_notes(MEMBERS["Responses"], definition, place)
            if definition.get("type") == "namespace":
                added += self._namespace(definition, place, deferred)
            elif run_here := self._run_here(definition, place):
                added += run_here
            elif (name := self._one(definition, place, None, "", deferred)) is not None:
                added.append(name)
        return tuple(added), tuple(self._notes)

    def origin(self, model_name: str) -> Origin:
        """What the client calls the tool that the model called. A name nobody offered is given back as it is."""
        found = self._origins.get(model_name)
        if found is not None:
            return found
        near = [o for o in self._origins.values() if o.namespace and model_name in (o.name, f"{o.namespace}.{o.name}")]
        return near[0] if len(near) == 1 else Origin(model_name)

    def name_of(self, name: str, namespace: str | None) -> str:
        """The model's name of a tool that the client calls so; made by the same rule when it is no longer on offer."""
        return self._names.get((namespace, name)) or flat_name(name, namespace)

    def keep(self, names: Iterable[str]) -> None:
        """Leave only these tools on offer."""
        wanted = set(names)
        self.tools = [tool for tool in self.tools if tool.name in wanted]

    def load_all(self) -> None:
        """Put every deferred tool in view."""
        self.tools = [msgspec.structs.replace(t, deferred=False) if t.deferred else t for t in self.tools]

    def _run_here(self, definition: dict[str, Any], path: str) -> list[str]:
        """The model's names of the tools of a definition that the gateway runs itself."""
        kind = definition.get("type")
        offer = self._offer_of_gateway
        found: list[tuple[Tool, HostedUse]] = []
        if isinstance(kind, str) and kind.startswith("web_search") and SEARCH.name in offer.kinds:
            filters = definition.get("filters")
            listed = filters if isinstance(filters, dict) else {}
            use = HostedUse(
                kind="web_search",
                server=SEARCH.name,
                allowed=domains(listed.get("allowed_domains")),
                blocked=domains(listed.get("blocked_domains")),
            )
            found = [(SEARCH, use)]
        elif kind == "code_interpreter" and CODE.name in offer.kinds:
            self._without_container(definition, path)
            found = [(_INTERPRETER, HostedUse(kind="code_execution", server=CODE.name))]
        elif kind == "file_search":
            found = [(FILES, self._file_search(definition, path))]
        elif kind == "mcp":
            label, allowed = definition.get("server_label"), definition.get("allowed_tools")
            if isinstance(label, str) and label in offer.servers:
                if definition.get("require_approval") != "never":
                    text = f"approval of calls is not offered; {label[:64]} needs require_approval: never"
                    self._notes.append(PartNote("tools.approval_needed", path, text, label[:64]))
                    return []
                names = allowed.get("tool_names") if isinstance(allowed, dict) else allowed
                found = server_tools(offer, label, names if isinstance(names, list) else None)
        for tool, use in found:
            if tool.name not in self._origins:
                self._origins[tool.name] = Origin(tool.name)
                self._names[(None, tool.name)] = tool.name
                self.tools.append(tool)
                self.hosted[tool.name] = use
        return [tool.name for tool, _ in found if tool.name in self.hosted]

    def _file_search(self, definition: dict[str, Any], path: str) -> HostedUse:
        """How files may be searched. A store that is not here is refused: without it any answer would be invented."""
        offer = self._offer_of_gateway
        wanted = definition.get("vector_store_ids")
        if not isinstance(wanted, list) or not wanted or not all(isinstance(each, str) for each in wanted):
            raise invalid(f"{path}.vector_store_ids", "file_search needs the ids of vector stores")
        missing = next((each for each in wanted if each not in offer.stores), None)
        if missing is not None:
            way = f"known here: {', '.join(sorted(offer.stores))}" if offer.stores else "no files are searched here"
            raise invalid(f"{path}.vector_store_ids", f"Vector store with id [{missing[:64]}] not found; {way}")
        if definition.get("filters"):
            text = "filters: not used; the server searches all of its files"
            self._notes.append(PartNote("tools.option_ignored", path, text, "filters"))
        most = definition.get("max_num_results")
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= 50):
            raise invalid(f"{path}.max_num_results", "must be a whole number from 1 to 50")
        return HostedUse(kind="file_search", server=FILES.name, stores=tuple(wanted), results=most)

    def _without_container(self, definition: dict[str, Any], path: str) -> None:
        """Note what a request says of its container: code runs where the operator's server runs it."""
        container = definition.get("container")
        asked = set(container) - {"type"} if isinstance(container, dict) else {"id"} if container else set()
        if asked:
            text = f"containers are not kept here; {', '.join(sorted(asked))[:64]} of code_interpreter is not used"
            self._notes.append(PartNote("tools.option_ignored", path, text, "container"))

    def _namespace(self, definition: dict[str, Any], path: str, deferred: bool) -> list[str]:
        namespace = _text(definition, "name", path)
        if not namespace:
            raise invalid(f"{path}.name", "a namespace needs a name")
        inner = definition.get("tools")
        if not isinstance(inner, list):
            raise invalid(f"{path}.tools", "must be a list of tools")
        about = _text(definition, "description", path)
        added: list[str] = []
        for index, tool in enumerate(inner):
            place = f"{path}.tools[{index}]"
            if not isinstance(tool, dict):
                raise invalid(place, "must be an object")
            self._notes += member_notes(MEMBERS["Responses"], tool, place)
            # The namespace's own description is said once, with its first tool: nothing is lost, nothing repeated.
            name = self._one(tool, place, namespace, about if not added else "", deferred)
            if name is not None:
                added.append(name)
        return added

    def _one(self, tool: dict[str, Any], path: str, namespace: str | None, about: str, deferred: bool) -> str | None:
        kind = tool.get("type", "function")
        if not isinstance(kind, str):
            raise invalid(f"{path}.type", "must be a string")
        if kind == "tool_search":
            return self._search(tool, path)
        if kind not in ("function", "custom"):
            code = "tools.hosted_ignored" if kind in HOSTED else "tools.type_ignored"
            shown = kind[:64]
            text = f"a '{shown}' tool cannot be run here and was left out of the prompt"
            self._notes.append(PartNote(code, path, text, shown))
            return None
        name = _text(tool, "name", path)
        if not name:
            raise invalid(f"{path}.name", "a tool needs a name")
        description = "\n\n".join(part for part in (about, _text(tool, "description", path)) if part)
        unseen = deferred or tool.get("defer_loading") is True
        known = self._names.get((namespace, name))
        if known is not None:
            # A tool that is loaded again (by a later tool_search_output) stays what it was: the prefix holds.
            return known
        if kind == "custom":
            made = self._custom(tool, path, description, unseen)
            origin = Origin(name, namespace, "custom")
        else:
            schema = tool.get("parameters")
            if schema is not None and not isinstance(schema, dict):
                raise invalid(f"{path}.parameters", "must be a JSON schema object")
            made = Tool(
                name=name,
                description=description,
                schema=schema or {"type": "object", "properties": {}},
                strict=tool.get("strict") is True,
                deferred=unseen,
            )
            origin = Origin(name, namespace)
        return self._offer(made, origin)

    def _custom(self, tool: dict[str, Any], path: str, description: str, deferred: bool) -> Tool:
        form = tool.get("format")
        grammar = syntax = None
        if isinstance(form, dict) and form.get("type") == "grammar":
            grammar, syntax = _text(form, "definition", f"{path}.format"), _text(form, "syntax", f"{path}.format")
        return Tool(
            name=tool["name"],
            description=description,
            schema=raw_input_schema(),
            kind="custom",
            grammar=grammar,
            grammar_syntax=syntax,
            deferred=deferred,
        )

    def _search(self, tool: dict[str, Any], path: str) -> str | None:
        if tool.get("execution") != "client":
            text = "tool_search is not run here; deferred tools are shown from the start"
            self._notes.append(PartNote("tools.hosted_ignored", path, text, "tool_search"))
            return None
        self.client_search = True
        schema = tool.get("parameters")
        made = Tool(
            name="tool_search",
            description=_text(tool, "description", path) or "Find tools that are not shown yet.",
            schema=schema if isinstance(schema, dict) else SEARCH_SCHEMA,
        )
        return self._offer(made, Origin("tool_search", None, "tool_search"))

    def _offer(self, tool: Tool, origin: Origin) -> str:
        wanted = flat_name(origin.name, origin.namespace)
        name, number = wanted, 1
        while name in self._origins:
            number += 1
            name = f"{wanted}_{number}"
        self._origins[name] = origin
        self._names[(origin.namespace, origin.name)] = name
        self.tools.append(msgspec.structs.replace(tool, name=name, namespace=origin.namespace))
        return name


_INTERPRETER = msgspec.structs.replace(CODE, name="code_interpreter")
"""Code execution under the name that this API has for it."""

SEARCH_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["query"],
}


def _text(source: dict[str, Any], field: str, path: str) -> str:
    value = source.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise invalid(f"{path}.{field}", "must be a string")
    return value
