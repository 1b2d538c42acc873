"""Tools reach the model under unique names, and calls come back in the client's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from turnwire.protocols.responses import Origin
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import ToolChoice

Decode = Callable[..., Inbound]

EXEC = {"type": "function", "name": "exec_command", "parameters": {"type": "object"}, "strict": False}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edit files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin"},
}
MCP = {
    "type": "namespace",
    "name": "mcp__mail",
    "description": "The mail server.",
    "tools": [
        {"type": "function", "name": "send", "description": "Send it.", "parameters": {"type": "object"}},
        {"type": "custom", "name": "raw"},
    ],
}


def names(inbound: Inbound) -> list[str]:
    return [tool.name for tool in inbound.conversation.tools]


def test_every_kind_of_tool_codex_sends(decode: Decode) -> None:
    inbound = decode(tools=[EXEC, PATCH, MCP, {"type": "web_search", "external_web_access": True}, {"type": "novel"}])
    run, patch, send, raw = inbound.conversation.tools
    assert (run.name, run.kind, run.schema, run.strict) == ("exec_command", "function", {"type": "object"}, False)
    assert (patch.kind, patch.grammar, patch.grammar_syntax) == ("custom", "start: begin", "lark")
    assert patch.schema["required"] == ["input"]
    assert patch.description == "Edit files."
    assert (send.name, send.namespace) == ("mcp__mail__send", "mcp__mail")
    assert send.description == "The mail server.\n\nSend it."
    assert (raw.name, raw.kind, raw.description) == ("mcp__mail__raw", "custom", "")
    assert [note.code for note in inbound.notes] == ["tools.hosted_ignored", "tools.type_ignored"]
    assert "web_search" in inbound.notes[0].message


def test_calls_find_their_way_back(decode: Decode) -> None:
    toolbox = decode(tools=[EXEC, PATCH, MCP]).echo.toolbox  # type: ignore[attr-defined]
    assert toolbox.origin("exec_command") == Origin("exec_command")
    assert toolbox.origin("apply_patch") == Origin("apply_patch", None, "custom")
    assert toolbox.origin("mcp__mail__send") == Origin("send", "mcp__mail")
    # what models write when they shorten a name, as long as only one tool can be meant
    assert toolbox.origin("send") == Origin("send", "mcp__mail")
    assert toolbox.origin("mcp__mail.send") == Origin("send", "mcp__mail")
    assert toolbox.origin("nobody") == Origin("nobody")


def test_names_are_unique_and_stable(decode: Decode) -> None:
    tools = [
        {"type": "function", "name": "a__b"},
        {"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "b"}]},
        {"type": "namespace", "name": "a__", "tools": [{"type": "function", "name": "b"}]},
    ]
    inbound = decode(tools=tools)
    assert names(inbound) == ["a__b", "a__b_2", "a__b_3"]
    assert inbound.echo.toolbox.origin("a__b_2") == Origin("b", "a")  # type: ignore[attr-defined]
    assert names(decode(tools=tools)) == names(inbound)


def test_an_ambiguous_short_name_stays_as_it_is(decode: Decode) -> None:
    tools = [{"type": "namespace", "name": n, "tools": [{"type": "function", "name": "go"}]} for n in ("x", "y")]
    assert decode(tools=tools).echo.toolbox.origin("go") == Origin("go")  # type: ignore[attr-defined]


def test_deferred_tools_wait_for_a_client_search_and_show_without_one(decode: Decode) -> None:
    deferred = {"type": "function", "name": "late", "defer_loading": True}
    search = {"type": "tool_search", "execution": "client"}
    assert [t.deferred for t in decode(tools=[deferred, search]).conversation.tools] == [True, False]
    hosted = decode(tools=[deferred, {"type": "tool_search"}])
    assert [t.deferred for t in hosted.conversation.tools] == [False]
    assert [note.code for note in hosted.notes] == ["tools.hosted_ignored"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice()),
        ("none", ToolChoice(mode="none")),
        ("required", ToolChoice(mode="required")),
        ({"type": "function", "name": "exec_command"}, ToolChoice(mode="named", name="exec_command")),
        ({"type": "custom", "name": "apply_patch"}, ToolChoice(mode="named", name="apply_patch")),
        (
            {"type": "function", "name": "send", "namespace": "mcp__mail"},
            ToolChoice(mode="named", name="mcp__mail__send"),
        ),
    ],
)
def test_tool_choice(decode: Decode, choice: Any, expected: ToolChoice) -> None:
    assert decode(tools=[EXEC, PATCH, MCP], tool_choice=choice).conversation.tool_choice == expected


def test_allowed_tools_are_all_that_is_shown(decode: Decode) -> None:
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "apply_patch"}]}
    inbound = decode(tools=[EXEC, PATCH, MCP], tool_choice=choice, parallel_tool_calls=False)
    assert names(inbound) == ["apply_patch"]
    assert inbound.conversation.tool_choice == ToolChoice(mode="required", parallel=False)
    assert [note.code for note in inbound.notes] == ["tools.allowed_only"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": ["x"]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "x", "parameters": "s"}]}, "tools[0].parameters"),
        ({"tools": [{"type": "namespace", "name": "n"}]}, "tools[0].tools"),
        ({"tool_choice": "always"}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "ghost"}}, "tool_choice.name"),
    ],
)
def test_a_wrong_tool_is_refused_by_its_path(decode: Decode, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(TurnFailure) as caught:
        decode(**fields)
    assert caught.value.param == param
