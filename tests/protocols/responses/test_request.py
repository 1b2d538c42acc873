"""Request fields: used, echoed or noted, never lost; what cannot be answered truly is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from turnwire.protocols import responses
from turnwire.protocols.limits import Limits
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import OutputFormat, Sampling, Thinking

Decode = Callable[..., Inbound]

CODEX_HEADERS = {
    "originator": "codex_exec",
    "user-agent": "codex_exec/0.166.0 (Linux)",
    "session-id": "root",
    "thread-id": "root",
    "x-client-request-id": "root",
    "x-codex-window-id": "root:0",
    "x-codex-turn-metadata": '{"request_kind":"turn","turn_id":"t1"}',
    "x-codex-beta-features": "remote_compaction_v2",
}


def codes(inbound: Inbound) -> list[str]:
    return [note.code for note in inbound.notes]


def echoed(inbound: Inbound) -> dict[str, Any]:
    fields = b"".join(inbound.echo.fields)  # type: ignore[attr-defined]
    return msgspec.json.decode(b"{" + fields[1:] + b"}")  # type: ignore[no-any-return]


def test_what_codex_sends_is_understood_without_a_note(decode: Decode) -> None:
    inbound = decode(
        headers=CODEX_HEADERS,
        stream=True,
        store=False,
        input=[{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        tools=[],
        tool_choice="auto",
        parallel_tool_calls=True,
        reasoning={"effort": "medium", "summary": "auto"},
        include=["reasoning.encrypted_content"],
        prompt_cache_key="root",
        client_metadata={"session_id": "root", "thread_id": "root", "x-codex-window-id": "root:0"},
    )
    assert codes(inbound) == []
    assert inbound.stream
    assert inbound.echo.codex
    assert not inbound.echo.store
    assert inbound.conversation.thinking == Thinking(mode="on", effort="medium")
    context = inbound.conversation.context
    assert (context.session, context.agent, context.window, context.turn_class) == ("root", None, "root:0", "main")


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({}, {"prompt_cache_key": "k"}, ("k", None, None, "main")),
        ({"x-session-id": "ses"}, {"prompt_cache_key": "k"}, ("ses", None, None, "main")),
        ({"session_id": "old"}, {}, ("old", None, None, "main")),
        (
            {
                "session-id": "root",
                "thread-id": "child",
                "x-codex-parent-thread-id": "root",
                "x-openai-subagent": "collab_spawn",
                "x-codex-window-id": "child:2",
            },
            {},
            ("root", "root", "child:2", "subagent"),
        ),
        (
            {"session-id": "r", "x-codex-turn-metadata": '{"request_kind":"compaction"}'},
            {},
            ("r", None, None, "compaction"),
        ),
        (
            # a WebSocket: only client_metadata is fresh
            {"session-id": "r", "thread-id": "r", "x-codex-window-id": "r:0"},
            {
                "client_metadata": {
                    "x-codex-window-id": "r:1",
                    "thread_id": "kid",
                    "x-codex-turn-metadata": '{"request_kind":"prewarm"}',
                }
            },
            ("r", None, "r:1", "background"),
        ),
    ],
)
def test_who_asks(decode: Decode, headers: dict[str, str], body: dict[str, Any], expected: tuple[Any, ...]) -> None:
    context = decode(headers=headers, **body).conversation.context
    assert (context.session, context.parent, context.window, context.turn_class) == expected


@pytest.mark.parametrize(("tier", "priority"), [(None, 0), ("auto", 0), ("priority", 1), ("flex", -1)])
def test_a_service_tier_is_a_priority(decode: Decode, tier: str | None, priority: int) -> None:
    inbound = decode(service_tier=tier)
    assert inbound.conversation.context.priority == priority
    assert echoed(inbound)["service_tier"] == (tier if tier not in (None, "auto") else "default")


def test_sampling_and_format(decode: Decode) -> None:
    schema = {"type": "object"}
    inbound = decode(
        max_output_tokens=32000,
        temperature=0,
        top_p=0.5,
        presence_penalty=1,
        frequency_penalty=-1,
        top_k=5,
        seed=3,
        stop="END",
        text={"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}},
        chat_template_kwargs={"x": True},
    )
    assert inbound.conversation.sampling == Sampling(
        max_tokens=32000,
        temperature=0.0,
        top_p=0.5,
        presence_penalty=1.0,
        frequency_penalty=-1.0,
        top_k=5,
        seed=3,
        stop=("END",),
    )
    assert inbound.conversation.format == OutputFormat(kind="json_schema", schema=schema, name="n", strict=True)
    assert inbound.conversation.template_args == {"x": True}
    assert codes(inbound) == []


@pytest.mark.parametrize(
    ("reasoning", "thinking"),
    [
        (None, Thinking()),
        ({}, Thinking()),
        ({"summary": "auto"}, Thinking()),
        ({"effort": "none"}, Thinking(mode="off", effort="none")),
        ({"effort": "xhigh"}, Thinking(mode="on", effort="xhigh")),
        ({"effort": "low", "context": "all_turns"}, Thinking(mode="on", effort="low", history="keep")),
    ],
)
def test_reasoning(decode: Decode, reasoning: Any, thinking: Thinking) -> None:
    assert decode(reasoning=reasoning).conversation.thinking == thinking


def test_every_field_is_echoed_or_noted(decode: Decode) -> None:
    """Each field of the API's own parameter list, with a value that asks for something."""
    asked: dict[str, Any] = {
        "background": True,
        "instructions": "be brief",
        "max_output_tokens": 64,
        "max_tool_calls": 3,
        "metadata": {"k": "v"},
        "parallel_tool_calls": False,
        "prompt_cache_key": "key",
        "prompt_cache_retention": "24h",
        "reasoning": {"effort": "low", "summary": "auto"},
        "safety_identifier": "s",
        "service_tier": "flex",
        "store": False,
        "temperature": 0.25,
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "tool_choice": "required",
        "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {}, "strict": True}],
        "top_logprobs": 5,
        "top_p": 0.5,
        "truncation": "auto",
        "user": "u",
    }
    unknown: dict[str, Any] = {
        "context_management": [{"type": "compaction"}],
        "moderation": {"model": "m"},
        "stream_options": {"include_obfuscation": True},
        "something_new": 1,
        "nvext": {"agent_hints": {"priority": 3, "latency": 1}},
    }
    inbound = decode(**asked, **unknown, include=["message.output_text.logprobs"])
    echo = echoed(inbound)
    for name, value in asked.items():
        assert echo[name] == value, name
    noted = " ".join(note.message for note in inbound.notes)
    for name in (
        "context_management",
        "moderation",
        "stream_options.include_obfuscation",
        "something_new",
        "nvext.agent_hints.latency",
    ):
        assert f"{name}: not " in noted
    for name in ("prompt_cache_retention", "safety_identifier", "top_logprobs", "truncation", "user"):
        assert f"{name}: not " in noted
    assert "logprobs" in noted
    assert inbound.conversation.context.priority == 3


def test_a_silent_request_echoes_the_defaults(decode: Decode) -> None:
    inbound = decode()
    echo = echoed(inbound)
    assert (echo["temperature"], echo["top_p"], echo["store"], echo["tools"]) == (1.0, 1.0, True, [])
    assert echo["text"] == {"format": {"type": "text"}, "verbosity": "medium"}
    assert echo["reasoning"] == {"effort": None, "summary": None}
    assert codes(inbound) == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 3}, "model"),
        ({"input": None}, "input"),
        ({"input": 3}, "input"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": True}, "top_p"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"reasoning": "high"}, "reasoning"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"include": "all"}, "include"),
        ({"stop": [1]}, "stop"),
        ({"instructions": 3}, "instructions"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"previous_response_id": "resp_gone"}, "previous_response_id"),
        ({"tools": [{"type": "function", "name": "f", "parameters": {"a": [[[]]] * 3}}] * 3}, "tools"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    body = msgspec.json.encode({"model": "m", "input": "hi", **fields})
    with pytest.raises(TurnFailure) as caught:
        responses.decode(body, {}, limits=Limits(tools=2))
    assert caught.value.kind == "invalid_request"
    assert caught.value.param == param


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"model":"m","input":' + b"[" * 100_000])
def test_a_body_that_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(TurnFailure) as caught:
        responses.decode(body, {})
    assert caught.value.kind == "invalid_request"


def test_lenient_rows_of_the_client_list(decode: Decode) -> None:
    inbound = decode(
        headers={"x-session-affinity": "ses_1", "traceparent": "00-" + "a" * 32 + "-b-01"},
        input=[
            {"role": "developer", "content": "d"},
            {"role": "user", "content": "a"},
            {"role": "user", "content": "b"},
            {"type": "reasoning", "summary": [], "encrypted_content": None},
            {"type": "item_reference", "id": "rs_unknown"},
        ],
        include=[],
        tools=[{"type": "function", "name": "f", "parameters": {"$schema": "x", "title": "t"}, "strict": True}],
    )
    assert inbound.conversation.context.session == "ses_1"
    assert [message.role for message in inbound.conversation.messages] == ["developer", "user", "user"]


def test_codex_with_its_generic_record_is_noticed(decode: Decode) -> None:
    shell = {"type": "function", "name": "exec_command", "parameters": {}}
    patch = {"type": "custom", "name": "apply_patch"}
    metadata = {"x-codex-installation-id": "1"}

    def codes(*tools: dict[str, Any], **more: Any) -> list[str]:
        return [note.code for note in decode(tools=list(tools), **more).notes]

    assert codes(shell, client_metadata=metadata) == ["codex.generic_metadata"]
    assert codes(shell, patch, client_metadata=metadata) == []
    assert codes(client_metadata=metadata) == []
    assert codes(shell) == []
