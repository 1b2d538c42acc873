"""Who asks and how urgently, from the headers of every harness."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.protocols.context import AgentHints, dispatch_opt_in, side_class, turn_context
from turnwire.turns import Message, OutputFormat, TextBlock, Tool, TurnContext

CODEX = {
    "user-agent": "codex_exec/0.166.0 (Linux)",
    "session-id": "root",
    "thread-id": "root",
    "x-client-request-id": "root",
    "x-codex-window-id": "root:1",
    "x-codex-turn-metadata": json.dumps({"request_kind": "turn"}),
}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, TurnContext()),
        (
            {"x-dynamo-session-id": "d", "x-claude-code-session-id": "c", "x-dynamo-parent-session-id": "p"},
            TurnContext(session="d", parent="p", turn_class="subagent"),
        ),
        ({"x-dynamo-session-id": "d", "x-dynamo-session-final": "true"}, TurnContext(session="d", final=True)),
        (
            {"x-claude-code-session-id": "c", "x-claude-code-agent-id": "a"},
            TurnContext(session="c", agent="a", parent="c", turn_class="subagent"),
        ),
        (
            {
                "x-claude-code-session-id": "c",
                "x-claude-code-agent-id": "a",
                "x-claude-code-parent-agent-id": "b",
            },
            TurnContext(session="c", agent="a", parent="b", turn_class="subagent"),
        ),
        (
            {"x-claude-code-session-id": "c", "x-claude-code-request-class": "compaction"},
            TurnContext(session="c", turn_class="compaction"),
        ),
        (
            {"x-claude-code-session-id": "c", "x-claude-1p-request-class": "background-task"},
            TurnContext(session="c", turn_class="background", priority=-2, urgency=0.25),
        ),
        ({"x-claude-code-request-class": "of-next-year"}, TurnContext()),
        (CODEX, TurnContext(session="root", window="root:1", client="codex_exec/0.166.0")),
        (
            {
                **CODEX,
                "thread-id": "child",
                "x-openai-subagent": "collab_spawn",
                "x-codex-parent-thread-id": "root",
                "x-codex-turn-metadata": json.dumps({"request_kind": "turn", "thread_source": "subagent"}),
            },
            TurnContext(
                session="root",
                agent="child",
                parent="root",
                window="root:1",
                turn_class="subagent",
                client="codex_exec/0.166.0",
            ),
        ),
        (
            {**CODEX, "x-codex-turn-metadata": json.dumps({"request_kind": "compaction"})},
            TurnContext(session="root", window="root:1", turn_class="compaction", client="codex_exec/0.166.0"),
        ),
        (
            {"x-session-id": "ses_1", "x-parent-session-id": "ses_0"},
            TurnContext(session="ses_1", parent="ses_0", turn_class="subagent"),
        ),
        ({"x-session-affinity": "ses_1"}, TurnContext(session="ses_1")),
        ({"session_id": "pi"}, TurnContext(session="pi")),
        ({"x-client-request-id": "r"}, TurnContext(session="r")),
        (
            {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"},
            TurnContext(session=f"trace-{'a' * 32}"),
        ),
        ({"traceparent": "nonsense"}, TurnContext()),
        ({"x-dynamo-request-priority": "7"}, TurnContext(priority=7)),
        ({"x-dynamo-request-priority": "7", "x-dynamo-request-strict-priority": "9"}, TurnContext(priority=7, tier=9)),
        ({"x-dynamo-request-strict-priority": "-3"}, TurnContext()),
        ({"x-turnwire-deadline": "2.5"}, TurnContext(patience=2.5)),
        ({"x-turnwire-deadline": "1e9"}, TurnContext(patience=86_400.0)),
        ({"x-turnwire-deadline": "nan"}, TurnContext()),
        ({"x-turnwire-deadline": "soon"}, TurnContext()),
        ({"x-dynamo-request-priority": "999999"}, TurnContext(priority=100)),
        ({"x-dynamo-request-priority": "soon"}, TurnContext()),
        ({"x-codex-turn-metadata": "{"}, TurnContext()),
        ({"x-codex-turn-metadata": "[" * 10_000}, TurnContext()),
    ],
)
def test_headers(headers: dict[str, str], expected: TurnContext) -> None:
    assert turn_context(headers) == expected


def test_the_body_speaks_where_headers_are_silent() -> None:
    hints = AgentHints(priority=3, tier=2, expected_output=90)
    assert turn_context({}, session="body", window="w", turn_class="title", hints=hints) == TurnContext(
        session="body", window="w", turn_class="title", priority=3, tier=2, expected_output=90, urgency=0.25
    )
    assert turn_context({}, hints=AgentHints(latency_sensitivity=2.5)) == TurnContext(priority=2, urgency=1.0)
    assert turn_context({"session-id": "head"}, session="body").session == "head"
    assert turn_context({"x-client-request-id": "weak"}, session="body").session == "body"


def test_lengths_are_bounded() -> None:
    context = turn_context({"session-id": "s" * 999, "user-agent": "u" * 999}, limit=8)
    assert (context.session, context.client) == ("s" * 8, "u" * 8)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "session-id",
                "thread-id",
                "traceparent",
                "x-codex-turn-metadata",
                "x-dynamo-request-priority",
                "x-openai-subagent",
                "user-agent",
            ]
        ),
        st.text(max_size=40),
    )
)
def test_any_header_is_read_without_raising(headers: dict[str, str]) -> None:
    turn_context(headers)


@pytest.mark.parametrize(
    ("value", "expected"), [(None, None), ("1", True), ("TRUE", True), ("0", False), ("no", False)]
)
def test_dispatch_opt_in(value: str | None, expected: bool | None) -> None:
    assert dispatch_opt_in({} if value is None else {"x-turnwire-dispatch": value}) is expected


def test_side_class() -> None:
    user = Message(role="user", blocks=(TextBlock(text="hi"),))
    titled = OutputFormat(kind="json_schema", schema={"properties": {"title": {}}})
    system = Message(role="system", blocks=(TextBlock(text="You are a Title Generator."),))
    assert side_class([user], [], titled) == "title"
    assert side_class([system, user], [], None) == "title"
    assert side_class([system, user], [Tool(name="a")], None) is None
    assert side_class([user], [], None) is None
    assert side_class([user, Message(role="assistant", blocks=()), user], [], titled) is None
