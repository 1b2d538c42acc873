"""Tokenize requests give something to tokenize, or are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.protocols import chat, tokenize
from turnwire.protocols.wire import TurnFailure

USER = [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}


def read(**fields: Any) -> tokenize.Tokenize:
    return tokenize.decode(json.dumps(fields).encode())


@pytest.mark.parametrize("name", ["prompt", "text", "content"])
def test_a_text_in_every_spelling(name: str) -> None:
    asked = read(**{name: "some text", "model": "m", "return_token_strs": True})
    assert (asked.text, asked.conversation, asked.model, asked.strings) == ("some text", None, "m", True)


def test_an_empty_text_has_no_tokens_and_is_no_mistake() -> None:
    assert read(prompt="").text == ""


def test_a_conversation_is_the_one_that_chat_would_read() -> None:
    body = {"model": "m", "messages": USER, "tools": [TOOL], "chat_template_kwargs": {"enable_thinking": False}}
    asked, turn = read(**body).conversation, chat.decode(json.dumps(body).encode(), {}).conversation
    assert asked is not None
    assert (asked.messages, asked.tools, asked.template_args) == (turn.messages, turn.tools, turn.template_args)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, None),
        ({"model": "m"}, None),
        ({"input": "x"}, None),
        ({"prompt": "x", "messages": USER}, "messages"),
        ({"prompt": "x", "text": "y"}, "text"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": "x", "tools": [TOOL]}, "tools"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot"}]}, "messages.0.role"),
    ],
)
def test_a_body_with_nothing_to_tokenize_is_refused(fields: dict[str, Any], param: str | None) -> None:
    with pytest.raises(TurnFailure) as caught:
        read(**fields)
    assert (caught.value.kind, caught.value.param) == ("invalid_request", param)


def test_options_of_other_servers_are_noted() -> None:
    noted = read(prompt="x", add_special_tokens=True, odd=1).notes
    assert [note.message.split(":")[0] for note in noted] == ["add_special_tokens", "odd"]


@pytest.mark.parametrize("tokens", [None, "x", [1, "2"], [-1], [True], {}])
def test_ids_must_be_ids(tokens: Any) -> None:
    with pytest.raises(TurnFailure) as caught:
        tokenize.decode_ids(json.dumps({"tokens": tokens}).encode())
    assert caught.value.param == "tokens"
    assert tokenize.decode_ids(b'{"tokens": [1, 2]}').tokens == (1, 2)
