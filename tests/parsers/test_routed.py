"""Families that route by headers or typed blocks: what goes where, what a broken header means, where a turn starts."""
# ruff: noqa: E501

from __future__ import annotations

import json

import pytest
from running import cut, events_of, parse
from test_cases import EDIT, LS, TOOLS, codes, read, told

from turnwire.parsers import Start, UnknownDialect, resolve, start_state
from turnwire.turns import BlockDelta


def oss(channel: str, body: str, to: str = "", end: str = "<|end|>", opener: str = "<|start|>assistant") -> str:
    recipient = f" to=functions.{to} <|constrain|>json" if to else ""
    return f"{opener}<|channel|>{channel}{recipient}<|message|>{body}{end}"


def oss_call(name: str = "edit", body: str = '{"path": "a"}', end: str = "<|call|>") -> str:
    return oss("commentary", body, name, end)


def atem(name: str = "edit", **values: str) -> str:
    body = "".join(f'<atem:parameter name="{key}">{value}</atem:parameter>\n' for key, value in values.items())
    return f'<atem:function_calls>\n<atem:invoke name="{name}">\n{body}</atem:invoke>\n</atem:function_calls>'


def k3(name: str = "edit", *arguments: tuple[str, str, str]) -> str:
    body = "".join(
        f'<|open|>argument key="{key}" type="{kind}"<|sep|>{value}<|close|>argument<|sep|>'
        for key, kind, value in arguments
    )
    return f'<|open|>call tool="{name}" index="1"<|sep|>{body}<|close|>call<|sep|>'


PATH = ("path", "string", "a")
R, T = "reasoning", "text"
THOUGHT_K3 = "<|close|>think<|sep|>"
TOOLS_K3 = f"<|open|>tools<|sep|>{k3('edit', PATH)}{k3('ls')}<|close|>tools<|sep|>"
ASK = '<|tool_call:begin|>id1<|tool_call:name|>edit<|tool_call:args|>{"path": "a"}<|tool_call:end|>'

# (dialect, text, blocks): as the format asks, without a note.
PLAIN = [
    ("harmony", oss("analysis", "hm", opener="") + oss_call() + oss_call("ls", "{}"), [(R, "hm"), EDIT, LS]),
    (
        "harmony",
        oss("analysis", "a", opener="") + oss("commentary", "On it: ") + oss_call(),
        [(R, "a"), (T, "On it:"), EDIT],
    ),
    ("harmony", oss("analysis", "a", opener="") + oss("final", "b", end="<|return|>"), [(R, "a"), (T, "b")]),
    ("harmony", oss_call("ls", "{}") + oss("analysis", "b") + oss("final", "c"), [LS, (R, "b"), (T, "c")]),
    ("harmony", ' to=functions.edit<|channel|>commentary json<|message|>{"path": "a"}<|call|>', [EDIT]),
    ("harmony", '<|channel|>analysis to=functions.edit code<|message|>{"path": "a"}<|call|>', [EDIT]),
    ("harmony", '<|channel|>commentary to=edit<|message|>{"path": "a"}<|call|>', [EDIT]),
    ("harmony", '<|channel|>final <|constrain|>json<|message|>{"name": "ls"}<|return|>', [(T, '{"name": "ls"}')]),
    ("harmony", oss_call("web-search.v2", '{"q": "x"}'), [("call", "web-search.v2", {"q": "x"})]),
    ("harmony", oss_call("ls", ""), [LS]),
    ("harmony", oss_call("ls", "{}", end=""), [LS]),
    ("harmony", oss_call("edit", '{\n "path": "a"\n}\n'), [EDIT]),
    (
        "harmony",
        oss_call("edit", '{"path": "say <|call|> or <|end|>, then {"}'),
        [("call", "edit", {"path": "say <|call|> or <|end|>, then {"})],
    ),
    ("harmony", oss("final", "write `<|end|>` there"), [(T, "write `<|end|>` there")]),
    (
        "muse",
        f" to=self<|message|>hm<|eom|><|start|>assistant to=edit<|message|>{atem(path='a')}<|eom|>",
        [(R, "hm"), EDIT],
    ),
    ("muse", f" to=user<|message|>See {atem(path='a')}<|eot|>", [(T, f"See {atem(path='a')}")]),
    ("muse", f" to=self<|message|>Like {atem('ls')}?<|eom|>", [(R, f"Like {atem('ls')}?")]),
    ("muse", f" to=edit.edit<|message|>{atem('edit.edit', path='a')}<|eot|>", [EDIT]),
    (
        "muse",
        f" to=web-search.v2<|message|>{atem('web-search.v2', q='true')}<|eot|>",
        [("call", "web-search.v2", {"q": "true"})],
    ),
    (
        "muse",
        f" to=edit<|message|>{atem(path=' x ', count='3', deep='true', extra='[1]', other='a b')}<|eot|>",
        [("call", "edit", {"path": " x ", "count": 3, "deep": True, "extra": [1], "other": "a b"})],
    ),
    (
        "muse",
        f""" to=edit<|message|>{atem(path='"a"')}<|eom|><|start|>assistant to=ls<|message|>{atem("ls")}<|eot|>""",
        [EDIT, LS],
    ),
    (
        "inkling",
        '<|content_thinking|>hm<|end_message|><|message_model|>edit<|content_invoke_tool_json|>{"name": "edit", "args": {"path": "a"}}<|end_message|>',
        [(R, "hm"), EDIT],
    ),
    (
        "inkling",
        'edit<|content_invoke_tool_json|>{"args": {"path": "a"}, "name": "edit"}<|content_model_end_sampling|>',
        [EDIT],
    ),
    ("inkling", "<|content_text|>a<|content_text|> b<|end_message|>", [(T, "a b")]),
    ("inkling", "<|content_text|>a<|content_thinking|>b<|end_message|>", [(T, "a"), (R, "b")]),
    ("inkling", "<|content_invoke_tool_text|>say it<|end_message|>", [(T, "say it")]),
    ("inkling", "Yes", [(T, "Yes")]),
    (
        "kimi_k3",
        f"hm<|close|>think<|sep|><|open|>response<|sep|>ok<|close|>response<|sep|>{TOOLS_K3}<|close|>message<|sep|><|end_of_msg|>",
        [(R, "hm"), (T, "ok"), EDIT, LS],
    ),
    (
        "kimi_k3",
        f"<|open|>think<|sep|>hm<|close|>think<|sep|>{TOOLS_K3}<|open|>think<|sep|>again<|close|>think<|sep|>",
        [(R, "hm"), EDIT, LS, (R, "again")],
    ),
    ("kimi_k3", "<|close|>think<|sep|><|open|> response <|sep|>ok<|close|> response <|sep|>", [(T, "ok")]),
    (
        "kimi_k3",
        "<|close|>think<|sep|><|open|>tools<|sep|>"
        + k3(
            "edit",
            ("path", "string", " 007\n"),
            ("count", "number", "3"),
            ("deep", "boolean", "true"),
            ("options", "object", '{"x": 1}'),
            ("note", "null", "null"),
        )
        + "<|close|>tools<|sep|>",
        [("call", "edit", {"path": " 007\n", "count": 3, "deep": True, "options": {"x": 1}, "note": None})],
    ),
    (
        "kimi_k3",
        "<|close|>think<|sep|><|open|>tools<|sep|>"
        + k3("edit", ("path", "string", "&quot; <|open|>x<|sep|> <|close|>"))
        + "<|close|>tools<|sep|>",
        [("call", "edit", {"path": "&quot; <|open|>x<|sep|> <|close|>"})],
    ),
    (
        "kimi_k3",
        '<|close|>think<|sep|><|open|>tools<|sep|><|open|>call tool="edit" index="1"<|sep|><|open|>json<|sep|>{"path": "a"}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>',
        [EDIT],
    ),
    ("kimi_k3", "about <|open|>tags and <|close|>things", [(R, "about <|open|>tags and <|close|>things")]),
    ("solar_open", f"<|think|>hm<|end|><|begin|>assistant<|tool_calls|>{ASK}<|calls|>", [(R, "hm"), EDIT]),
    ("solar_open", "<|think|>hm<|end|><|begin|>assistant<|content|>ok<|end|>", [(R, "hm"), (T, "ok")]),
    ("functionary_v3_2", 'all\nOn it.>>>edit\n{"path": "a"}>>>ls\n{}<|eot_id|>', [(T, "On it."), EDIT, LS]),
    ("functionary_v3_2", "all\n>>> x = 1\n>>>x\n1", [(T, ">>> x = 1\n>>>x\n1")]),
    ("functionary_v3_2", 'edit\n{"path": ">>>ls\\n{}"}', [("call", "edit", {"path": ">>>ls\n{}"})]),
]

# (dialect, text, blocks, a code that is reported): not as the format asks, but clear.
BROKEN = [
    ("harmony", "<|channel|>––commentary to=functions.ls<|message|>{}<|call|>", [LS], "rescue.header"),
    ("harmony", "<|channel|>analysis<|channel|>commentary to=functions.ls<|message|>{}<|call|>", [LS], "rescue.header"),
    (
        "harmony",
        "<|channel|>commentary to=functions.ls<|channel|>commentary<|message|>{}<|call|>",
        [LS],
        "rescue.header",
    ),
    ("harmony", "<|channel|>commentary to=functions.lsjson<|message|>{}<|call|>", [LS], "rescue.header"),
    ("harmony", "<|channel|>commentary to=functions.ls??<|message|>{}<|call|>", [LS], "rescue.header"),
    (
        "harmony",
        "<|channel|>commentary to=assistant<|channel|>analysis<|message|>hm<|end|>",
        [(R, "hm")],
        "rescue.header",
    ),
    ("harmony", "<|channel|>commentary <|constrain|>response<|message|>Hi", [(T, "Hi")], ""),
    ("harmony", "<|start|>ls<|channel|>commentary<|message|>{}<|call|>", [LS], "rescue.header"),
    ("harmony", "<|start|>bash<|channel|>commentary<|message|>out<|end|>", [(T, "out")], "rescue.header"),
    ("harmony", "<|channel|>final Hi there<|end|>", [(T, " Hi there")], "rescue.header"),
    ("harmony", "<|channel|>??<|message|>Hi<|end|>", [(T, "Hi")], "rescue.header"),
    ("harmony", "Hi there", [(T, "Hi there")], "rescue.header"),
    ("harmony", "to=me it may concern", [(T, "to=me it may concern")], "rescue.header"),
    ("harmony", oss_call("ls", "{}", end="") + oss("final", "x"), [LS, (T, "x")], "rescue.missing_closer"),
    ("harmony", oss_call("ls", "{}") + " and so on", [LS, (T, " and so on")], "rescue.header"),
    ("harmony", oss_call("ls", "{}}"), [LS], "call.noise"),
    ("harmony", oss_call("edit", "{'path': 'a'}"), [EDIT], "rescue.python_literal"),
    ("harmony", oss("analysis", "a", end="", opener="") + "<|channel|>final<|message|>b", [(R, "a"), (T, "b")], ""),
    ("harmony", oss("analysis", "a", opener="") + "assistant<|channel|>final<|message|>b", [(R, "a"), (T, "b")], ""),
    ("harmony", oss_call("nosuch", "{}"), [("call", "nosuch", {})], "call.unknown_tool"),
    ("harmony", '<|channel|>commentary <|constrain|>json<|message|>{"path": "a"}<|call|>', [], "call.unnamed"),
    ("harmony", '<|channel|>commentary <|constrain|>json<|message|>{"answer": 42}<|end|>', [(T, '{"answer": 42}')], ""),
    ("harmony", "<|channel|>commentary to=functions<|message|>{}<|call|>", [], "call.unnamed"),
    ("harmony", oss_call("edit", "not json"), [("call", "edit", "not json")], "call.malformed"),
    (
        "harmony",
        '<|channel|>commentary to=python<|message|>print("x")<|call|>',
        [("call", "python", 'print("x")')],
        "call.malformed",
    ),
    (
        "harmony",
        oss_call("edit", '{"path": "a') + oss("final", "b"),
        [("call", "edit", '{"path": "a'), (T, "b")],
        "call.malformed",
    ),
    ("muse", f" to=self<|message|>hm<|start|>assistant to=ls<|message|>{atem('ls')}", [(R, "hm"), LS], ""),
    ("muse", f" to=edit<|message|>{atem(path='a').split('</atem:invoke>')[0]}<|eom|>", [EDIT], "rescue.missing_closer"),
    ("muse", ' to=edit<|message|>{"path": "a"}<|eom|>', [EDIT], ""),
    ("muse", " to=friend<|message|>Hi<|eom|>", [(T, "Hi")], "rescue.header"),
    ("muse", atem(path="a"), [(T, atem(path="a"))], "rescue.header"),
    (
        "inkling",
        "edit<|content_invoke_tool_json|>{broken<|end_message|><|message_model|><|content_text|>b",
        [(T, "b")],
        "call.unnamed",
    ),
    ("inkling", "Hi there", [(T, "Hi there")], "rescue.header"),
    ("kimi_k3", f"hm{TOOLS_K3}", [(R, "hm"), EDIT, LS], "rescue.call_in_reasoning"),
    ("kimi_k3", "hm<|open|>response<|sep|>ok", [(R, "hm"), (T, "ok")], "rescue.missing_closer"),
    ("kimi_k3", "hm<|close|>think<|open|>response<|sep|>ok", [(R, "hm"), (T, "ok")], "rescue.missing_closer"),
    ("kimi_k3", f"<|close|>think<|sep|>{k3('edit', PATH)}", [EDIT], "rescue.missing_wrapper"),
    ("kimi_k3", TOOLS_K3.replace("<|close|>argument<|sep|>", ""), [EDIT, LS], "rescue.missing_closer"),
    ("kimi_k3", TOOLS_K3.replace("<|close|>call<|sep|>", ""), [EDIT, LS], "rescue.missing_closer"),
    ("kimi_k3", TOOLS_K3.replace(' tool="edit"', ""), [LS], "call.unnamed"),
    (
        "kimi_k3",
        "<|open|>tools<|sep|>" + k3("edit", ("options", "object", "{no")) + "<|close|>tools<|sep|>",
        [("call", "edit", {"options": "{no"})],
        "",
    ),
    ("solar_open", f"<|think|>hm<|begin|>assistant<|tool_calls|>{ASK}<|calls|>", [(R, "hm"), EDIT], ""),
    ("solar_open", ASK, [EDIT], "rescue.header"),
    ("functionary_v3_2", "Hi\nthere", [(T, "Hi\nthere")], "rescue.header"),
    ("functionary_v3_2", 'nosuch\n{"a": 1}', [("call", "nosuch", {"a": 1})], "call.unknown_tool"),
]


@pytest.mark.parametrize(("name", "text", "blocks"), PLAIN)
def test_plain_output(name, text, blocks):
    turn = read(name, text, "reasoning" if name == "kimi_k3" else "header")
    assert told(turn) == blocks
    if name != "kimi_k3":
        assert told(read(name, text)) == blocks
    assert codes(turn) == []


@pytest.mark.parametrize(("name", "text", "blocks", "code"), BROKEN)
def test_broken_output_is_rescued_and_reported(name, text, blocks, code):
    turn = read(name, text, "reasoning" if name == "kimi_k3" else "header")
    assert told(turn) == blocks
    assert code in codes(turn) or not code


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("analysisWe look.assistantfinalDone.", [(R, "We look."), (T, "Done.")]),
        ('analysisWe look.assistantcommentary to=functions.edit json{"path": "a"}', [(R, "We look."), EDIT]),
        ("commentary to=functions.ls code{}assistantcommentaryOn it.", [LS, (T, "On it.")]),
        ("finalYes", [(T, "Yes")]),
        ("analysis of this", [(T, "analysis of this")]),
        ("finally", [(T, "finally")]),
        ("commentary", [(T, "commentary")]),
    ],
)
def test_channels_without_their_special_tokens(text, blocks):
    turn = read("harmony", text, "header")
    assert told(turn) == blocks
    assert codes(turn) == ["rescue.header"]


@pytest.mark.parametrize(
    ("name", "text", "blocks"),
    [
        ("harmony", "<|channel|>commentary to=functions.ls <|constr", []),
        ("harmony", oss_call("edit", '{"path": "x', end=""), [("call", "edit", '{"path": "x')]),
        ("harmony", oss("analysis", "thin", end="", opener=""), [(R, "thin")]),
        (
            "muse",
            ' to=edit<|message|><atem:function_calls>\n<atem:invoke name="edit">\n<atem:parameter name="path">x',
            [("call", "edit", '{"path": "x')],
        ),
        (
            "inkling",
            '<|content_invoke_tool_json|>{"name": "edit", "args": {"path": "x',
            [("call", "edit", '{"path": "x')],
        ),
        ("kimi_k3", "thin<|close|>thi", [(R, "thin")]),
        ("kimi_k3", "<|close|>think<|sep|><|open|>", []),
        ("kimi_k3", THOUGHT_K3 + TOOLS_K3[: TOOLS_K3.index("a<|close|>") + 1], [("call", "edit", '{"path": "a')]),
        ("solar_open", ASK[: ASK.index('a"}') + 1], [("call", "edit", '{"path": "a')]),
        ("functionary_v3_2", 'edit\n{"path": "x', [("call", "edit", '{"path": "x')]),
    ],
)
def test_a_cut_turn_dispatches_nothing(name, text, blocks):
    turn = read(name, text, "reasoning" if name == "kimi_k3" else "header", "length")
    assert told(turn) == blocks
    assert turn.reason == "length"
    assert all(block.malformed for block in turn.of("tool_call"))


def test_complete_calls_survive_a_cut():
    assert told(read("kimi_k3", THOUGHT_K3 + TOOLS_K3[:-25], "reasoning", "length"))[0] == EDIT
    assert told(read("harmony", oss_call() + "<|start|>assist", "header", "length")) == [EDIT]


def test_an_id_in_the_format_is_kept():
    assert read("solar_open", f"<|tool_calls|>{ASK}", "header").blocks[0].call_id == "id1"


@pytest.mark.parametrize(
    ("name", "tail", "text", "blocks"),
    [
        ("harmony", "<|start|>user<|message|>hi<|end|><|start|>assistant", "<|channel|>final<|message|>b", [(T, "b")]),
        ("harmony", "<|start|>assistant<|channel|>final<|message|>", "b<|return|>", [(T, "b")]),
        ("harmony", "<|start|>assistant<|channel|>analysis<|message|>", "b<|end|>", [(R, "b")]),
        ("harmony", "<|start|>assistant<|channel|>", "analysis<|message|>b<|end|>", [(R, "b")]),
        ("harmony", "<|start|>assistant to=functions.ls<|channel|>commentary json<|message|>", "{}<|call|>", [LS]),
        ("harmony", "<|start|>user<|message|>hi<|end|>", oss("final", "b"), [(T, "b")]),
        ("muse", "<|start|>assistant", " to=self<|message|>b", [(R, "b")]),
        ("muse", "<|start|>assistant to=self<|message|>", "b<|eom|>", [(R, "b")]),
        ("inkling", "<|end_message|><|message_model|>", "<|content_thinking|>b", [(R, "b")]),
        ("inkling", "<|message_model|><|content_text|>", "b", [(T, "b")]),
        ("kimi_k3", '<|open|>message role="assistant"<|sep|><|open|>think<|sep|>', "b", [(R, "b")]),
        ("kimi_k3", '<|open|>message role="assistant"<|sep|><|open|>response<|sep|>', "b", [(T, "b")]),
        ("kimi_k3", '<|open|>think<|sep|>b<|end_of_msg|><|open|>message role="user"<|sep|>', "b", [(T, "b")]),
        ("solar_open", "<|begin|>assistant<|think|><|end|><|begin|>assistant", "<|content|>b<|end|>", [(T, "b")]),
        ("solar_open", "<|begin|>assistant<|think|>", "b<|end|>", [(R, "b")]),
        ("functionary_v3_2", "<|start_header_id|>assistant<|end_header_id|>\n\n>>>", "all\nb", [(T, "b")]),
        ("functionary_v3_2", "<|start_header_id|>assistant<|end_header_id|>\n\n>>>all\n", "b", [(T, "b")]),
        (
            "cohere_command4",
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|>",
            "b<|END_THINKING|>",
            [(R, "b")],
        ),
        ("cohere_command4", "<|CHATBOT_TOKEN|><|START_THINKING|><|END_THINKING|>", "b", [(T, "b")]),
        ("apriel_1_6", "\n<|begin_assistant|>\nHere are my reasoning steps:\n", "b", [(R, "b")]),
    ],
)
def test_the_prompt_says_where_the_turn_starts(name, tail, text, blocks):
    dialect = resolve(name)
    assert told(parse(dialect, text, TOOLS, start_state(tail, dialect))) == blocks


def test_stages_can_be_off():
    text = f" to=self<|message|>hm<|eom|><|start|>assistant to=ls<|message|>{atem('ls')}<|eot|>"
    muse = resolve("muse")
    assert told(parse(muse.without_reasoning(), text, TOOLS)) == [(T, "hm"), LS]
    assert told(parse(muse.without_calls(), text, TOOLS)) == [(R, "hm"), (T, text[text.index("<|start|>") :])]
    hidden = resolve("kimi_k3").without_calls()
    assert told(parse(hidden, f"hm{TOOLS_K3}", TOOLS, Start("reasoning"))) == [(R, "hm"), (T, TOOLS_K3)]
    assert resolve("harmony").without_reasoning().router == resolve("harmony").router


SPELLINGS = {
    "harmony": "harmony gpt_oss openai gpt-oss openai_gptoss",
    "muse_glimmer": "muse_glimmer muse",
    "inkling": "inkling",
    "kimi_k3": "kimi_k3 kimi-k3",
    "solar_open": "solar_open solar",
    "functionary_v3_2": "functionary_v3_2",
    "functionary_v3_1": "functionary_v3_1",
    "phi4_mini": "firefunction_v2",
    "gigachat3": "gigachat3",
    "cohere_command3": "cohere_command3 cohere cohere_cmd",
    "cohere_command4": "cohere_command4",
    "command_r_plus": "command_r_plus",
    "apertus": "apertus apertus2509",
    "apriel_1_5": "apriel_1_5",
    "apriel_1_6": "apriel_1_6",
}


@pytest.mark.parametrize(("name", "spelling"), [(n, s) for n, all_ in SPELLINGS.items() for s in all_.split()])
def test_every_spelling_resolves(name, spelling):
    assert resolve(spelling).name == name
    assert resolve(spelling.upper(), spelling).name == name


def test_a_router_goes_with_its_own_reasoning_only():
    assert resolve("openai", "openai_gptoss") is resolve("harmony")
    with pytest.raises(UnknownDialect, match="harmony"):
        resolve("openai", "qwen3")


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("harmony", '<|channel|>commentary to=functions.edit<|message|>{"path": "', '"}<|call|>'),
        (
            "muse",
            ' to=edit<|message|><atem:function_calls>\n<atem:invoke name="edit">\n<atem:parameter name="path">',
            "",
        ),
        ("inkling", '<|content_invoke_tool_json|>{"name": "edit", "args": {"path": "', '"}}<|end_message|>'),
        (
            "kimi_k3",
            '<|open|>tools<|sep|><|open|>call tool="edit"<|sep|><|open|>argument key="path" type="string"<|sep|>',
            "",
        ),
        ("solar_open", ASK[: ASK.index('a"}')], '"}<|tool_call:end|>'),
        ("functionary_v3_2", 'edit\n{"path": "', '"}'),
        ("harmony", "<|channel|>final<|message|>", ""),
        ("kimi_k3", "", ""),
    ],
)
def test_text_and_strings_stream_as_they_come(name, before, after):
    events = events_of(resolve(name), cut(before + "word " * 400 + after, 5), TOOLS)
    assert sum(isinstance(event, BlockDelta) for event in events) > 350


def test_a_call_may_quote_a_whole_conversation_of_its_own_family():
    quoted = oss("analysis", "I quote myself.") + oss_call("ls", '{"path": "a"}') + "\nand so it ends."
    arguments = json.dumps({"path": f"A call looks so:\n{quoted}", "count": 3})
    events = read("harmony", oss_call("edit", arguments), "header")
    assert told(events) == [("call", "edit", json.loads(arguments))]


def test_a_string_that_was_left_open_ends_where_the_next_message_begins():
    broken = oss_call("edit", '{"path": "a') + oss("final", 'It is "done", or nearly.')
    calls = [block for block in told(read("harmony", broken, "header")) if block[0] == T]
    assert calls == [(T, 'It is "done", or nearly.')]
