"""The members of tool definitions that are known here, what becomes of each, and the notes on members.

Promise: of a definition no member is forgotten in silence: one that asks for what is not done, or that nobody knows, is
noted. docs/fields.md prints these tables too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.protocols.fields.decoded import PartNote
from turnwire.protocols.fields.table import Field, FieldTable

__all__ = ["MEMBERS", "member_notes"]

_MOST = 16
_JSON = msgspec.json.Decoder()

_EVERY: FieldTable = {
    "type": Field("honoured", "what kind of tool it is"),
    "name": Field("honoured", "under which the model calls it"),
    "description": Field("honoured", "what the model reads of it"),
    "strict": Field("honoured", "arguments keep to the schema, where the engine is guided"),
    "cache_control": Field("accepted", "prefixes are cached without marks"),
    "copilot_cache_control": Field("accepted", "prefixes are cached without marks"),
    "output_schema": Field("accepted", "results are passed on as they are"),
    "user_location": Field("noted", "the server that searches is not told where the user is"),
    "allowed_callers": Field(
        "noted", "tools are called by the model, never by code", (["direct"], ["direct", "programmatic"])
    ),
    "defer_loading": Field("honoured", "the tool is shown when a search has found it"),
}

_MESSAGES: FieldTable = {
    **_EVERY,
    "input_schema": Field("honoured", "the schema of its arguments"),
    "eager_input_streaming": Field("accepted", "arguments always stream"),
    "input_examples": Field("noted", "examples are not shown to the model; put them into the description", ([],)),
    "max_uses": Field("honoured", "most calls in one answer, of a tool that the gateway runs"),
    "allowed_domains": Field("honoured", "of a search or a fetch that the gateway runs"),
    "blocked_domains": Field("honoured", "of a search or a fetch that the gateway runs"),
    "mcp_server_name": Field("honoured", "the label of an MCP server of the operator's"),
    "citations": Field("noted", "answers carry no citations", ({"enabled": False},)),
    "max_content_tokens": Field("noted", "the operator's `max_bytes` bounds a page"),
    "max_characters": Field("noted", "the client that runs the editor cuts its answers"),
    "url_sources": Field("noted", "any address within the domains may be read"),
    "use_cache": Field("noted", "the server that reads pages decides", (True,)),
    "response_inclusion": Field("noted", "results are always part of the answer", ("full",)),
    "display_width_px": Field("noted", "computer use is not offered"),
    "display_height_px": Field("noted", "computer use is not offered"),
    "display_number": Field("noted", "computer use is not offered"),
    "enable_zoom": Field("noted", "computer use is not offered"),
    "default_config": Field("noted", "all tools of the server are offered"),
    "configs": Field("noted", "all tools of the server are offered"),
}

_CHAT: FieldTable = {
    **_EVERY,
    "function": Field("honoured", "the tool, where it is a function"),
    "custom": Field("honoured", "the tool, where its input is a text"),
    "parameters": Field("honoured", "the schema of its arguments"),
    "format": Field("honoured", "the grammar of a custom tool's text"),
}

_RESPONSES: FieldTable = {
    **_EVERY,
    "parameters": Field("honoured", "the schema of its arguments"),
    "format": Field("honoured", "the grammar of a custom tool's text"),
    "tools": Field("honoured", "those of a namespace"),
    "execution": Field("honoured", "who runs a tool search"),
    "filters": Field("honoured", "domains of a search that the gateway runs; of file_search noted"),
    "search_context_size": Field("noted", "the operator's `max_bytes` bounds what is read", ("medium",)),
    "search_content_types": Field("noted", "findings are text", (["text"],)),
    "external_web_access": Field("noted", "the server that searches decides", (True,)),
    "indexed_web_access": Field("noted", "the server that searches decides", (True,)),
    "index_gated_web_access": Field("noted", "the server that searches decides", (True,)),
    "container": Field("honoured", "code runs at the operator's server; what else is said of it is noted"),
    "vector_store_ids": Field("honoured", "one that is not here is refused"),
    "max_num_results": Field("honoured", "most passages of a file search"),
    "ranking_options": Field("noted", "the server that searches ranks"),
    "async": Field("noted", "a call is answered before the next turn", (False,)),
    "server_label": Field("honoured", "the label of an MCP server of the operator's"),
    "server_description": Field("noted", "the server's own tools say what they do"),
    "server_url": Field("noted", "only servers of the operator's are called"),
    "connector_id": Field("noted", "only servers of the operator's are called"),
    "tunnel_id": Field("noted", "only servers of the operator's are called"),
    "authorization": Field("noted", "the operator's key is used"),
    "headers": Field("noted", "the operator's key is used"),
    "allowed_tools": Field("honoured", "those of an MCP server that are offered"),
    "require_approval": Field("honoured", "`never`; with any other value the server's tools are left out, with a note"),
}

MEMBERS: Mapping[str, FieldTable] = {"Messages": _MESSAGES, "Chat Completions": _CHAT, "Responses": _RESPONSES}
"""The members of a tool definition, for each API that has tools."""


def member_notes(
    table: FieldTable, definition: Mapping[str, Any], path: str, code: str = "tools.option_ignored"
) -> list[PartNote]:
    """A note for each member of an object, by itself a tool's definition, that has no effect here. Members may still be
    JSON text."""
    notes: list[PartNote] = []
    for name, given in definition.items():
        row = table.get(name)
        if len(notes) == _MOST or (row is not None and row.use != "noted"):
            continue
        value = _JSON.decode(given) if isinstance(given, msgspec.Raw) else given
        if value is None:
            continue
        if row is None:
            text = f"{name[:64]}: not known here; not used"
        elif value not in row.quiet:
            text = f"{name}: not used; {row.about}"
        else:
            continue
        notes.append(PartNote(code, path, text, name[:64]))
    return notes
