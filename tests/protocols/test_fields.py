"""Every field of a request is honoured, echoed, noted, refused or accepted, as its one table says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, get_args

import msgspec
import pytest
from anthropic.types import ContentBlockParam
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import ChatCompletionContentPartParam
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import (
    CustomToolParam,
    FileSearchToolParam,
    FunctionToolParam,
    ResponseInputItemParam,
    WebSearchToolParam,
    response_create_params,
)
from openai.types.responses.tool_param import CodeInterpreter, Mcp

from turnwire.protocols import anthropic, chat, completions, embeddings, responses
from turnwire.protocols.context import AgentHints
from turnwire.protocols.fields.contents import CONTENTS
from turnwire.protocols.fields.extensions import Extensions, read_extensions
from turnwire.protocols.fields.members import MEMBERS
from turnwire.protocols.fields.reader import Fields
from turnwire.protocols.fields.table import CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES, RESPONSES, TABLES, FieldTable
from turnwire.protocols.limits import Limits
from turnwire.protocols.wire import TurnFailure
from turnwire.turns import Note

LIMITS = Limits()
USER = [{"role": "user", "content": "hi"}]


def _messages(body: bytes) -> tuple[Note, ...]:
    return anthropic.decode(body, {}).notes


def _chat(body: bytes) -> tuple[Note, ...]:
    return chat.decode(body, {}).notes


def _responses(body: bytes) -> tuple[Note, ...]:
    return responses.decode(body, {}, stored=responses.Stored(history=())).notes


def _completions(body: bytes) -> tuple[Note, ...]:
    return completions.decode(body, {}).notes


def _embeddings(body: bytes) -> tuple[Note, ...]:
    return embeddings.decode(body).notes


Decode = Callable[[bytes], tuple[Note, ...]]
APIS: dict[str, tuple[FieldTable, Decode, dict[str, Any]]] = {
    "messages": (MESSAGES, _messages, {"model": "m", "messages": USER}),
    "chat": (CHAT, _chat, {"model": "m", "messages": USER, "stream": True}),
    "responses": (RESPONSES, _responses, {"model": "m", "input": "hi"}),
    "completions": (COMPLETIONS, _completions, {"model": "m", "prompt": "hi", "stream": True}),
    "embeddings": (EMBEDDINGS, _embeddings, {"model": "m", "input": "hi"}),
}
ROWS = [(api, name) for api, (table, _, _) in APIS.items() for name, row in table.items() if row.use != "honoured"]
"""Honoured fields have tests of their own."""


SCHEMA = {"name": "n", "schema": {"type": "object"}, "description": "d"}
WITHIN: dict[str, dict[str, Any]] = {
    "response_format.json_schema.description": {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
    "text.format.description": {"text": {"format": {"type": "json_schema", **SCHEMA}}},
}
"""Members of objects that mean nothing without their siblings."""


def nested(name: str, value: Any) -> dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    return value  # type: ignore[no-any-return]


@pytest.mark.parametrize(("api", "name"), ROWS)
def test_a_field_is_treated_as_its_row_says(api: str, name: str) -> None:
    table, decode, least = APIS[api]
    row = table[name]
    asked = WITHIN.get(name) or nested(name, {"asks": "for something"})
    body = json.dumps({**least, **asked}).encode()
    if row.use == "refused":
        with pytest.raises(TurnFailure) as refused:
            decode(body)
        assert refused.value.param == name
        assert row.about in refused.value.message
        return
    codes = {"echoed": ["request.field_echoed"], "noted": ["request.field_ignored"], "accepted": []}[row.use]
    notes = [note for note in decode(body) if note.message.startswith(name)]
    assert [note.code for note in notes] == codes
    for value in row.quiet:
        assert not decode(json.dumps({**least, **nested(name, value)}).encode())


@pytest.mark.parametrize("api", APIS)
def test_a_field_without_a_row_is_noted(api: str) -> None:
    _, decode, least = APIS[api]
    notes = decode(json.dumps({**least, "field_of_next_year": {"deep": [1]}}).encode())
    assert [(note.code, note.message.split(":")[0]) for note in notes] == [
        ("request.field_ignored", "field_of_next_year")
    ]


@pytest.mark.parametrize("api", APIS)
def test_a_field_without_a_row_cannot_be_read(api: str) -> None:
    table, _, _ = APIS[api]
    fields = Fields(b'{"unlisted": 1}', table, LIMITS)
    for read in (fields.value, fields.text, fields.flag, fields.object, fields.raw, fields.has):
        with pytest.raises(LookupError):
            read("unlisted")


@pytest.mark.parametrize("api", APIS)
def test_every_honoured_field_is_read_by_its_decoder(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, decode, least = APIS[api]
    read: set[str] = set()
    raw, sent = Fields.raw, Fields.sent

    def reading(self: Fields, name: str) -> msgspec.Raw | None:
        read.add(name)
        return raw(self, name)

    def looking(self: Fields, names: Iterable[str]) -> list[str]:
        read.update(names)
        return sent(self, names)

    monkeypatch.setattr(Fields, "raw", reading)
    monkeypatch.setattr(Fields, "sent", looking)
    asked: dict[str, Any] = {} if api == "embeddings" else {"stream": True}
    if api == "chat":
        # Each of these is looked at only where the other is not.
        decode(json.dumps({**least, "tools": []}).encode())
    decode(json.dumps({**least, **asked}).encode())
    honoured = {name for name, row in table.items() if row.use == "honoured" and "." not in name}
    assert honoured - read == set()


VENDOR: list[tuple[str, FieldTable, Any]] = [
    ("chat", CHAT, chat_create_params.CompletionCreateParamsBase),
    ("responses", RESPONSES, response_create_params.ResponseCreateParamsBase),
    ("completions", COMPLETIONS, completion_create_params.CompletionCreateParamsBase),
    ("embeddings", EMBEDDINGS, embedding_create_params.EmbeddingCreateParams),
]


@pytest.mark.parametrize(("name", "table", "parameters"), VENDOR)
def test_every_field_of_the_vendors_types_has_a_row(name: str, table: FieldTable, parameters: Any) -> None:
    assert set(parameters.__annotations__) - set(table) == set()


def test_rows_say_why() -> None:
    assert all(row.about for table in TABLES.values() for row in table.values())
    assert all(not row.quiet or row.use != "honoured" for table in TABLES.values() for row in table.values())


@pytest.mark.parametrize(
    ("nvext", "expected"),
    [
        ({}, Extensions()),
        ({"agent_hints": {"priority": 2}}, Extensions(hints=AgentHints(priority=2))),
        (
            {"agent_hints": {"priority": 2, "strict_priority": 4, "osl": 700}},
            Extensions(hints=AgentHints(priority=2, tier=4, expected_output=700)),
        ),
        ({"agent_hints": {"osl": 0}}, Extensions()),
        ({"agent_hints": {"osl": 1e300}}, Extensions()),
        ({"agent_hints": {"latency_sensitivity": 1.5}}, Extensions(hints=AgentHints(latency_sensitivity=1.5))),
        ({"agent_hints": {"priority": True}}, Extensions()),
        ({"agent_hints": []}, Extensions()),
        ({"max_thinking_tokens": 50}, Extensions(thinking_budget=50)),
        ({"greed_sampling": True}, Extensions(greedy=True)),
        ({"dispatch": True}, Extensions(dispatch=True)),
    ],
)
def test_extensions(nvext: dict[str, Any], expected: Extensions) -> None:
    assert read_extensions(Fields(json.dumps({"nvext": nvext}).encode(), CHAT, LIMITS)) == expected


def test_extensions_shape_the_turn_on_every_api() -> None:
    nvext = {"agent_hints": {"priority": 7}, "max_thinking_tokens": 50, "greed_sampling": True}
    for conversation in (
        anthropic.decode(json.dumps({**APIS["messages"][2], "nvext": nvext}).encode(), {}).conversation,
        chat.decode(json.dumps({**APIS["chat"][2], "nvext": nvext}).encode(), {}).conversation,
        responses.decode(json.dumps({**APIS["responses"][2], "nvext": nvext}).encode(), {}).conversation,
    ):
        assert (conversation.context.priority, conversation.thinking.budget) == (7, 50)
        assert conversation.sampling.temperature == 0.0


TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "Messages": ("messages", {"name": "f", "input_schema": {"type": "object"}}),
    "Chat Completions": ("chat", {"type": "function", "function": {"name": "f"}}),
    "Responses": ("responses", {"type": "function", "name": "f"}),
}


def tool_notes(api: str, **members: Any) -> list[tuple[str, str]]:
    name, tool = TOOLS[api]
    _, decode, least = APIS[name]
    notes = decode(json.dumps({**least, "tools": [{**tool, **members}]}).encode())
    return [(note.code, note.message) for note in notes]


@pytest.mark.parametrize(
    ("api", "member"),
    [(api, name) for api, table in MEMBERS.items() for name, row in table.items() if row.use == "noted"],
)
def test_a_member_of_a_tool_is_noted_as_its_row_says(api: str, member: str) -> None:
    row = MEMBERS[api][member]
    ((code, message),) = tool_notes(api, **{member: {"asks": "for something"}})
    assert code == "tools.option_ignored"
    assert row.about in message
    for value in (None, *row.quiet):
        assert tool_notes(api, **{member: value}) == []


@pytest.mark.parametrize("api", TOOLS)
def test_a_member_of_a_tool_without_a_row_is_noted(api: str) -> None:
    assert tool_notes(api) == []
    ((code, message),) = tool_notes(api, member_of_next_year={"deep": [1]})
    assert code == "tools.option_ignored"
    assert "member_of_next_year: not known here" in message


def test_every_member_of_the_vendors_tools_has_a_row() -> None:
    known = set(MEMBERS["Responses"])
    kinds = (FunctionToolParam, CustomToolParam, WebSearchToolParam, FileSearchToolParam, CodeInterpreter, Mcp)
    assert {name for kind in kinds for name in kind.__annotations__} - known == set()


@pytest.mark.parametrize(
    ("api", "field", "value"),
    [
        ("messages", "thinking", {"type": "enabled", "budget_tokens": 1024}),
        ("messages", "output_config", {"effort": "low"}),
        ("messages", "tool_choice", {"type": "auto"}),
        ("messages", "context_management", {"edits": []}),
        ("chat", "thinking", {"type": "enabled"}),
        ("chat", "response_format", {"type": "json_object"}),
        ("responses", "prompt_cache_options", {"comparison_response_id": "resp_1"}),
        ("responses", "reasoning", {"effort": "low"}),
        ("responses", "text", {"format": {"type": "text"}}),
    ],
)
def test_no_member_of_an_object_is_forgotten(api: str, field: str, value: dict[str, Any]) -> None:
    _, decode, least = APIS[api]
    assert decode(json.dumps({**least, field: value}).encode()) == ()
    (note,) = decode(json.dumps({**least, field: {**value, "of_next_year": 1}}).encode())
    assert (note.code, note.message) == ("request.field_ignored", f"{field}.of_next_year: not known here; not used")


def test_members_of_messages_and_documents_that_have_no_effect_are_noted() -> None:
    named = chat.decode(json.dumps({"model": "m", "messages": [{**USER[0], "name": "Ann"}]}).encode(), {})
    assert [(note.code, note.message) for note in named.notes] == [
        ("request.field_ignored", "messages.0: name: not used")
    ]
    document = {"type": "document", "source": {"type": "text", "data": "x"}, "citations": {"enabled": True}}
    cited = anthropic.decode(
        json.dumps({"model": "m", "messages": [{"role": "user", "content": [document]}]}).encode(), {}
    )
    assert [note.code for note in cited.notes] == ["request.field_ignored"]


def test_chat_offers_only_the_tools_that_are_allowed() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("a", "b")]
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "b"}}]}
    body = {"model": "m", "messages": USER, "tools": tools}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    inbound = chat.decode(json.dumps({**body, "tool_choice": choice}).encode(), {})
    assert [tool.name for tool in inbound.conversation.tools] == ["b"]
    assert inbound.conversation.tool_choice.mode == "required"
    assert [note.code for note in inbound.notes] == ["tools.allowed_only"]
    for name, wrong in (("c", "not in tools"), ([], "must name each tool"), (None, "must name each tool")):
        allowed["tools"] = [{"type": "function", "function": {"name": name}}]
        with pytest.raises(TurnFailure, match=wrong):
            chat.decode(json.dumps({**body, "tool_choice": choice}).encode(), {})


def _block(block: dict[str, Any]) -> tuple[Note, ...]:
    return _messages(json.dumps({"model": "m", "messages": [{"role": "user", "content": [block]}]}).encode())


def _part(part: dict[str, Any]) -> tuple[Note, ...]:
    return _chat(json.dumps({"model": "m", "messages": [{"role": "user", "content": [part]}]}).encode())


def _tool_call(call: dict[str, Any]) -> tuple[Note, ...]:
    said = {"role": "assistant", "tool_calls": [call]}
    answer = {"role": "tool", "tool_call_id": "c", "content": "x"}
    return _chat(json.dumps({"model": "m", "messages": [*USER, said, answer]}).encode())


def _item(item: dict[str, Any]) -> tuple[Note, ...]:
    return _responses(json.dumps({"model": "m", "input": [item]}).encode())


def _response_part(part: dict[str, Any]) -> tuple[Note, ...]:
    return _item({"role": "user", "content": [part]})


CONTENT: dict[str, tuple[Callable[[dict[str, Any]], tuple[Note, ...]], dict[str, Any]]] = {
    "Messages: members of a content block": (_block, {"type": "text", "text": "hi"}),
    "Chat Completions: members of a content part": (_part, {"type": "text", "text": "hi"}),
    "Chat Completions: members of a tool call": (_tool_call, {"id": "c", "function": {"name": "f", "arguments": "{}"}}),
    "Responses: members of an input item": (_item, {"type": "message", "role": "user", "content": "hi"}),
    "Responses: members of a content part": (_response_part, {"type": "input_text", "text": "hi"}),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_a_member_of_what_was_said_without_a_row_is_noted(kind: str) -> None:
    decode, least = CONTENT[kind]
    assert decode(least) == ()
    (note,) = decode({**least, "member_of_next_year": {"deep": [1]}})
    assert note.code == "request.field_ignored"
    assert note.message.endswith(": member_of_next_year: not known here; not used")


@pytest.mark.parametrize(
    ("kind", "member"),
    [(kind, name) for kind, table in CONTENTS.items() for name, row in table.items() if row.use != "honoured"],
)
def test_a_member_of_what_was_said_is_treated_as_its_row_says(kind: str, member: str) -> None:
    decode, least = CONTENT[kind]
    row = CONTENTS[kind][member]
    asked = [note.message for note in decode({**least, member: {"asks": "for something"}})]
    assert [row.about in message for message in asked] == ([True] if row.use == "noted" else [])
    for value in (None, *row.quiet):
        assert decode({**least, member: value}) == ()


OTHER_PARTS = {"ChatCompletionContentPartInputAudioParam", "File"}
OTHER_ITEMS = {
    "ResponseFileSearchToolCallParam", "ResponseFunctionWebSearchParam", "ResponseCodeInterpreterToolCallParam",
    "McpCall", "McpListTools", "McpApprovalRequest", "McpApprovalResponse", "ResponseComputerToolCallParam",
    "ComputerCallOutput", "ImageGenerationCall", "LocalShellCall", "ShellCall", "ShellCallOutput", "ApplyPatchCall",
    "Program", "ProgramOutput", "ResponseConfigurationUpdateItemParamParam",
}  # fmt: skip
"""What a gateway's own tools did has readers of its own; the rest is kept whole and noted."""


def _members(union: Any) -> dict[str, set[str]]:
    """The members of every object in a union of the vendors' types, by the type of the object."""
    found: dict[str, set[str]] = {}
    for one in get_args(union):
        if isinstance(one, type):
            names = {name for base in one.__mro__ for name in getattr(base, "__annotations__", {})}
            found[one.__name__] = names
        else:
            found.update(_members(one))
    return found


@pytest.mark.parametrize(
    ("kind", "union", "others"),
    [
        ("Messages: members of a content block", ContentBlockParam, {"ContainerUploadBlockParam"}),
        ("Chat Completions: members of a content part", ChatCompletionContentPartParam, OTHER_PARTS),
        ("Responses: members of an input item", ResponseInputItemParam, OTHER_ITEMS),
    ],
)
def test_every_member_of_the_vendors_blocks_has_a_row(kind: str, union: Any, others: set[str]) -> None:
    found = _members(union)
    assert others <= set(found)
    known = set(CONTENTS[kind])
    assert {name: members - known for name, members in found.items() if name not in others and members - known} == {}
