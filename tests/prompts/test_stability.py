"""Stability: what varies without meaning does not change a prompt token."""

from __future__ import annotations

import random

import pytest

from turnwire.conventions import BILLING_PREFIX
from turnwire.message_facts import message_facts
from turnwire.prompts import stability
from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.stability import StabilityOptions, stabilise
from turnwire.prompts.templates.template import ChatTemplate, default_template
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import (
    Conversation,
    Message,
    Role,
    TextBlock,
    Tool,
    ToolCallBlock,
    ToolResultBlock,
)

PLAIN = StabilityOptions()


def said(role: Role, *texts: str) -> Message:
    return Message(role=role, blocks=tuple(TextBlock(text=text) for text in texts))


def talk(*messages: Message, tools: tuple[Tool, ...] = ()) -> Conversation:
    return Conversation(model="m", messages=messages, tools=tools)


@pytest.fixture(scope="module")
def builder() -> PromptBuilder:
    return PromptBuilder(default_template(), load_tokenizer())


BILLING = [
    f"{BILLING_PREFIX} cc_version=2.1.80.a46; cc_entrypoint=sdk-cli; cch=00000;",
    f"{BILLING_PREFIX} cc_version=2.1.153.1f0; cc_entrypoint=sdk-cli; cch=c72a4;",
    f"{BILLING_PREFIX} cc_version=2.1.325.0c6; cc_entrypoint=sdk-cli; cc_is_subagent=true;",
    f"{BILLING_PREFIX} cc_version=2.1.325; cch=49714; cc_prev_req=req_1; cc_prompt_id=x; cc_turn_index=1;",
]


@pytest.mark.parametrize("line", BILLING)
def test_the_billing_line_changes_no_token(builder: PromptBuilder, line: str) -> None:
    rest = "You are an agent.\n\nBe brief."
    bare = builder.build(talk(said("system", rest), said("user", "Hi")))
    forms = [
        said("system", line, rest),
        said("system", f"{line}\n{rest}"),
        said("system", f"{line}\n\n{rest}"),
        said("system", line, "You are an agent.", "Be brief."),
    ]
    for form in forms:
        prompt = builder.build(talk(form, said("user", "Hi")))
        assert list(prompt.ids) == list(bare.ids)
        assert [note.code for note in prompt.notes] == ["stability.billing_dropped"]
    alone = builder.build(talk(said("system", line), said("user", "Hi")))
    assert list(alone.ids) == list(builder.build(talk(said("user", "Hi"))).ids)


def test_the_billing_prefix_is_left_alone_where_it_is_the_users_words(builder: PromptBuilder) -> None:
    prompt = builder.build(talk(said("user", f"{BILLING_PREFIX} what is this?")))
    assert "what is this?" in builder.tokenizer.decode(prompt.ids)
    assert prompt.notes == ()


def test_one_block_and_many_read_alike(builder: PromptBuilder) -> None:
    one = builder.build(talk(said("user", "first\nsecond")))
    many = builder.build(talk(said("user", "first\n", "", "second")))
    assert list(one.ids) == list(many.ids)


def test_parts_of_a_users_words_follow_each_other_as_templates_write_them(builder: PromptBuilder) -> None:
    one = builder.build(talk(said("system", "a\n\nb"), said("user", "first second")))
    many = builder.build(talk(said("system", "a", "b"), said("user", "first", " second")))
    assert list(one.ids) == list(many.ids)


BRINGS_ITS_OWN = """\
{%- if messages[0].role == 'system' -%}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' -}}
{%- else -%}{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' -}}{%- endif -%}
{%- for m in messages if m.role != 'system' -%}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""


@pytest.mark.parametrize("empty", [said("system"), said("system", ""), said("developer", "")])
def test_an_empty_system_message_keeps_a_templates_own_text_out(empty: Message) -> None:
    qwen = PromptBuilder(ChatTemplate(BRINGS_ITS_OWN), load_tokenizer())
    assert qwen.traits.empty_system
    prompt = qwen.build(talk(empty, said("user", "Hi")))
    text = qwen.tokenizer.decode(prompt.ids)
    assert text == qwen.template.render([{"role": "system", "content": ""}, {"role": "user", "content": "Hi"}])
    assert "helpful assistant" not in text
    assert "helpful assistant" in qwen.tokenizer.decode(qwen.build(talk(said("user", "Hi"))).ids)
    assert prompt.notes == ()


@pytest.mark.parametrize("empty", [said("system", ""), said("user", ""), said("assistant")])
def test_an_empty_message_is_left_out_with_a_note(builder: PromptBuilder, empty: Message) -> None:
    assert not builder.traits.empty_system
    prompt = builder.build(talk(empty, said("user", "Hi")))
    assert list(prompt.ids) == list(builder.build(talk(said("user", "Hi"))).ids)
    assert [note.code for note in prompt.notes] == ["stability.empty_dropped"]


def test_system_and_developer_openings_are_one() -> None:
    stable, _ = stabilise(talk(said("system", "a"), said("developer", "b\n"), said("user", "Hi")), PLAIN)
    assert [message.role for message in stable.messages] == ["system", "user"]
    assert stable.messages[0].text == "a\n\nb"


def test_the_first_system_message_moves_before_the_users_words() -> None:
    shape = talk(said("system", "S"), said("user", "prompt"), said("system", "env"))
    stable, notes = stabilise(shape, PLAIN)
    assert [message.role for message in stable.messages] == ["system", "user"]
    assert stable.messages[1].text == "<system-reminder>\nenv\n</system-reminder>\nprompt"
    assert [note.code for note in notes] == ["stability.system_hoisted"]
    kept, notes = stabilise(shape, StabilityOptions(hoist_system=False))
    assert [message.role for message in kept.messages] == ["system", "user", "system"]
    assert notes == []


def test_a_late_system_message_stays_or_is_folded() -> None:
    shape = talk(said("user", "a"), said("assistant", "b"), said("system", "note"), said("user", "c"))
    stays, notes = stabilise(shape, PLAIN, mid_system=True)
    assert [message.role for message in stays.messages] == ["user", "assistant", "system", "user"]
    assert notes == []
    folded, notes = stabilise(shape, PLAIN, mid_system=False)
    assert [message.role for message in folded.messages] == ["user", "assistant", "user"]
    assert folded.messages[2].text == "<system-reminder>\nnote\n</system-reminder>\nc"
    assert [note.code for note in notes] == ["stability.system_folded"]
    bare, _ = stabilise(talk(said("system", "S"), said("user", "a")), PLAIN, system=False)
    assert [(message.role, message.text) for message in bare.messages] == [("user", "S\n\na")]
    alone, _ = stabilise(
        talk(said("user", "a"), said("assistant", "b"), said("system", "note")), PLAIN, mid_system=False
    )
    assert [message.role for message in alone.messages] == ["user", "assistant", "user"]


def test_a_folded_system_message_does_not_look_like_a_new_request() -> None:
    call = Message(role="assistant", blocks=(ToolCallBlock(id="a", name="f", arguments="{}"),))
    result = Message(role="user", blocks=(ToolResultBlock(call_id="a"),))
    stable, _ = stabilise(talk(said("user", "go"), call, result, said("system", "note")), PLAIN, mid_system=False)
    assert message_facts(stable.messages).loop == 1
    assert isinstance(stable.messages[-1].blocks[0], ToolResultBlock)
    assert stable.messages[-1].text == "<system-reminder>\nnote\n</system-reminder>\n"


def test_results_come_in_the_order_of_their_calls() -> None:
    calls = Message(
        role="assistant",
        blocks=tuple(ToolCallBlock(id=name, name="f", arguments="{}") for name in ("a", "b", "c")),
    )
    results = [ToolResultBlock(call_id=name) for name in ("c", "a", "b")]
    reminder = TextBlock(text="later")
    shape = talk(said("user", "go"), calls, Message(role="user", blocks=(results[0], reminder, *results[1:])))
    stable, notes = stabilise(shape, PLAIN)
    last = stable.messages[-1].blocks
    assert [block.call_id for block in last[:3] if isinstance(block, ToolResultBlock)] == ["a", "b", "c"]
    assert last[3] == reminder
    assert [note.code for note in notes] == ["stability.results_reordered"]


def test_results_in_messages_of_their_own_are_one_answer() -> None:
    calls = Message(
        role="assistant", blocks=tuple(ToolCallBlock(id=name, name="f", arguments="{}") for name in ("a", "b"))
    )
    results = [Message(role="user", blocks=(ToolResultBlock(call_id=name),)) for name in ("b", "a")]
    stable, _ = stabilise(talk(said("user", "go"), calls, *results, said("user", "next")), PLAIN)
    assert [message.role for message in stable.messages] == ["user", "assistant", "user", "user"]
    assert [block.call_id for block in stable.messages[2].blocks if isinstance(block, ToolResultBlock)] == ["a", "b"]


def test_adjacent_assistant_messages_are_one_turn() -> None:
    stable, _ = stabilise(talk(said("user", "a"), said("assistant", "b"), said("assistant", "c")), PLAIN)
    assert [block.text for block in stable.messages[-1].blocks if isinstance(block, TextBlock)] == ["b", "c"]


def test_deferred_tools_show_where_they_are_loaded_and_the_prefix_holds(builder: PromptBuilder) -> None:
    base = Tool(name="Base", description="always")
    late = Tool(name="Cron", description="sometimes", schema={"type": "object"}, deferred=True)
    search = Message(role="assistant", blocks=(ToolCallBlock(id="s", name="Base", arguments="{}"),))
    loaded = Message(role="user", blocks=(ToolResultBlock(call_id="s", references=("Cron", "Unknown")),))
    before = builder.build(talk(said("user", "go"), tools=(base,)))
    prompt = builder.build(talk(said("user", "go"), search, loaded, tools=(base, late)))
    text = builder.tokenizer.decode(prompt.ids)
    assert text.count('"Cron"') == 1
    assert text.index('{"name": "Cron"') > text.index("<tool_response>")
    assert text.startswith(builder.tokenizer.decode(before.ids).removesuffix("<think>\n"))
    assert [note.code for note in prompt.notes] == ["stability.tools_expanded"]


def test_tools_keep_their_order_unless_told_otherwise() -> None:
    tools = (Tool(name="b", schema={"z": 1, "a": {"y": 1, "b": 2}}), Tool(name="a"))
    stable, _ = stabilise(talk(said("user", "x"), tools=tools), PLAIN)
    assert [tool.name for tool in stable.tools] == ["b", "a"]
    stable, _ = stabilise(talk(said("user", "x"), tools=tools), StabilityOptions(canonical_tools=True))
    assert [tool.name for tool in stable.tools] == ["a", "b"]
    assert list(stable.tools[1].schema) == ["a", "z"]
    assert list(stable.tools[1].schema["a"]) == ["b", "y"]


def test_a_conversation_that_is_left_alone_would_come_out_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)
    texts = ("", "Go on.", f"{BILLING_PREFIX} cc_version=2; cch=1;\nBe brief.")
    tools = ((), (Tool(name="look"),), (Tool(name="late", deferred=True),))
    left_alone = 0
    for _ in range(2000):
        messages = []
        for _ in range(chance.randrange(1, 7)):
            role: Role = chance.choice(("system", "developer", "user", "user", "assistant", "assistant"))
            blocks = [TextBlock(text=chance.choice(texts)) for _ in range(chance.choice((0, 1, 1, 1, 1, 2)))]
            message = Message(role=role, blocks=tuple(blocks))
            if role == "user" and chance.random() < 0.3:
                loaded = chance.choice(((), (), ("late",)))
                message = Message(role=role, blocks=(ToolResultBlock(call_id="1", references=loaded), *blocks[1:]))
            messages.append(message)
        sent = talk(*messages, tools=chance.choice(tools))
        with monkeypatch.context() as patch:
            quick = stabilise(sent, PLAIN)
            patch.setattr(stability, "_is_stable", lambda *_: False)
            assert quick == stabilise(sent, PLAIN)
            left_alone += quick[0] is sent
    assert left_alone > 100
