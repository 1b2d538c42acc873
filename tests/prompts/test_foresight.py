"""What a turn's end needs: nothing where the client's words give the same tokens back, and a carrier otherwise."""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from typing import Any
from unittest import mock

import msgspec
import pytest
from families import FAMILIES, template
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.prompt import Prompt
from turnwire.prompts.replay.foresight import Foresight, PlainAnswers, survives_clients
from turnwire.prompts.replay.rewriting import rewritten_on
from turnwire.prompts.replay.splicer import Openings
from turnwire.prompts.replay.written_calls import WrittenCalls
from turnwire.prompts.templates.probing.returned_turns import situation_of
from turnwire.prompts.templates.template import ChatTemplate, Renderer, TemplateFailure
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import Block, Conversation, Message, TextBlock, Thinking, Tool, ToolCallBlock, ToolResultBlock

TOKENIZER = load_tokenizer()
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "size": {"type": "integer"},
        "deep": {"type": "object"},
        "all": {"type": "boolean"},
    },
}
TOOL = Tool(name="Write", description="Writes.", schema=SCHEMA)


@pytest.mark.parametrize(
    ("arguments", "survives"),
    [
        ('{"path":"a"}', True),
        ('{"path":"a","size":1,"deep":{"z":[1.5,true],"a":"b"},"all":false}', True),
        ('{"path": "a"}', True),
        ('{"size":1,"path":"a"}', False),
        ('{"path":"a "}', False),
        ('{"path":"a\\n b  \\nc"}', False),
        ('{"path":"a","other":1}', False),
        ('{"size":"1"}', False),
        ('{"size":1.0}', False),
        ('{"size":12345678901234567890}', False),
        ('{"size":null}', False),
        ('{"deep":{"a":[null]}}', False),
        ('{"deep":{"a":9007199254740993}}', False),
        ("[1]", False),
        ('{"path":', False),
        ("", False),
    ],
)
def test_arguments_that_clients_leave_alone(arguments: str, survives: bool) -> None:
    assert survives_clients(arguments, SCHEMA, as_text=False) is survives


def test_defaults_and_the_text_of_json() -> None:
    with_default = {"type": "object", "properties": {"path": {"type": "string"}, "all": {"default": False}}}
    assert not survives_clients('{"path":"a"}', with_default, as_text=False)
    assert survives_clients('{"path":"a","all":true}', with_default, as_text=False)
    assert survives_clients('{"path":"é"}', SCHEMA, as_text=True)
    assert not survives_clients('{"path": "é"}', SCHEMA, as_text=True)
    assert not survives_clients('{"path":"\\u00e9"}', SCHEMA, as_text=True)
    assert not survives_clients('{"path":"a"}', {}, as_text=False)


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_known_of_plain_answers_is_what_asking_the_template_tells(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = PromptBuilder(template(name), TOKENIZER)
    prompt = asked(builder)
    foresight = prompt.foresight
    assert isinstance(foresight, Foresight)

    texts = ("Done.", 'He said "no" \\ and\n\n  left &amp; all', "a" * 70, "1. one\n2. two\n", " x", "<b>", "[TOOL] y")
    thought = TOKENIZER.encode("Hm.")
    turns = [([], text, text) for text in texts]
    turns += [(thought, gap + text, text) for text in texts for gap in ("", "\n\n")]

    def answers() -> list[bool]:
        return [
            foresight.restores([*kept, *TOKENIZER.encode(written)], len(kept), (TextBlock(text=text),))
            for kept, written, text in turns
        ]

    quick = answers()
    monkeypatch.setattr("turnwire.prompts.replay.foresight._is_running_text", lambda blocks: False)
    asks = rewritten_on
    monkeypatch.setattr(
        Foresight,
        "_after_thought",
        lambda self, rest, calls: asks(self._splicer(calls), self.traits, rest, self.args, after_thought=True),
    )
    assert quick == answers()


ONES = ("a", "/repo/ledger.py", "git log --stat -3; make (all)", "-1", "1", "true", "a  b", "x,y:z=1+2@#*?!^~", "TRUE.")
OTHERS = (
    'say "no"',
    "a\\b",
    "<b>&'c'",
    "é",
    "{a}",
    "[1]",
    " a",
    "a\nb",
    "",
    "null",
    "1e5",
    "a|b",
    "$x",
    "50 %",
    "`ls`",
)
SAID = ("", "I will read it.", 'One.\n\n  Two &amp; "three".', " blank ", "<b>", "ZqWord00Vx", "I will.\n")


@pytest.mark.parametrize("name", FAMILIES)
@given(data=st.data())
@settings(max_examples=25)
def test_what_is_known_of_calls_is_what_asking_the_template_tells(name: str, data: st.DataObject) -> None:
    """A model may have learnt a form from any words: the same ones as the template writes follow for all others."""
    foresight = asked(PromptBuilder(template(name), TOKENIZER)).foresight
    assert isinstance(foresight, Foresight)
    words = st.sampled_from((*ONES, *OTHERS)) if data.draw(st.booleans()) else st.sampled_from(ONES)
    shapes = st.lists(
        st.lists(st.sampled_from(("path", "note", "size")), unique=True, max_size=3), min_size=1, max_size=2
    )
    told = data.draw(st.lists(st.tuples(st.sampled_from(SAID), shapes, st.booleans()), min_size=2, max_size=6))
    for text, calls, kept in told:
        rest: list[Block] = [TextBlock(text=text)] if text else []
        for number, keys in enumerate(calls):
            arguments = json.dumps({key: data.draw(words) for key in keys}, separators=(",", ":"), ensure_ascii=False)
            rest.append(ToolCallBlock(id=str(number), name="Write", arguments=arguments))
        made = [block for block in rest if isinstance(block, ToolCallBlock)]
        fresh = msgspec.structs.replace(foresight, plain=PlainAnswers(TOKENIZER, foresight.end_tokens))
        with mock.patch.object(WrittenCalls, "of", lambda self, blocks, tools, about, write: write(blocks)):
            expected = fresh._written(rest, made, kept=kept)
        assert foresight._written(rest, made, kept=kept) == expected


def test_what_is_known_of_calls_is_bounded() -> None:
    known = WrittenCalls()
    for number in range(600):
        call = ToolCallBlock(id="1", name=f"tool{number}", arguments='{"path":"a"}')
        assert known.of([call], (), (), lambda blocks: str(blocks)) == str([call])
    assert len(known) <= 256
    long = ToolCallBlock(id="1", name="t" * 5000, arguments='{"path":"a"}')
    known.of([long], (), (), lambda blocks: str(blocks))
    assert len(known) <= 256


def test_of_tools_nothing_is_kept_with_what_is_known_of_their_calls() -> None:
    calls, openings, written = WrittenCalls(), Openings(), list[str]()

    def write(blocks: Sequence[Block]) -> str:
        written.append(str(blocks))
        return written[-1]

    for _ in range(3):  # equal tools in other objects, as each process of a client sends them
        tools = (msgspec.structs.replace(TOOL, description="Writes. " * 10_000),)
        assert openings.get("", tools, {}) == ("<user>" if written else None)
        calls.of([CALL], tools, (), write)
        openings.put("", tools, {}, "<user>")
    assert (len(calls), len(openings), len(written)) == (1, 1, 2)  # the call, and a sample of such calls
    calls.of([CALL], (TOOL,), (), write)
    assert openings.get("", (TOOL,), {}) is None
    assert len(written) == 4
    assert reached(calls, Tool) == reached(openings, Tool) == 0


def reached(known: object, kind: type) -> int:
    """How many objects of a kind are held by what is known."""
    seen, todo, count = set[int](), [known], 0
    while todo:
        held = todo.pop()
        if id(held) not in seen and not isinstance(held, type):
            seen.add(id(held))
            count += isinstance(held, kind)
            todo += gc.get_referents(held)
    return count


def asked(builder: PromptBuilder) -> Prompt:
    go = Message(role="user", blocks=(TextBlock(text="Go."),))
    return builder.build(Conversation(model="m", messages=(go,), tools=(TOOL,), thinking=Thinking(mode="on")))


def restores(prompt: Prompt, raw: str, rest: tuple[Any, ...], *, at: int | None = None) -> bool:
    """Whether a turn comes back whose thought ends with `</think>`, with its tokens cut at `at`."""
    assert prompt.foresight is not None
    parts = [raw] if at is None else [raw[:at], raw[at:]]
    ids = [token for part in parts for token in TOKENIZER.encode(part)]
    kept = len(TOKENIZER.encode(raw[: raw.index("</think>") + len("</think>")]))
    return prompt.foresight.restores(ids, kept, rest)


CALL = ToolCallBlock(id="1", name="Write", arguments='{"path":"a"}')
WRITTEN = '\n\n\n<tool_call>\n{"name": "Write", "arguments": {"path": "a"}}\n</tool_call>'


def test_a_tidy_turn_needs_no_seal_of_its_end() -> None:
    prompt = asked(PromptBuilder(template("qwen3"), TOKENIZER))
    assert restores(prompt, f"<think>\nHm.\n</think>{WRITTEN}", (CALL,))
    assert restores(prompt, "<think>\nHm.\n</think>\n\nDone.", (TextBlock(text="Done."),))


def test_a_turn_whose_words_do_not_give_its_tokens_needs_one() -> None:
    prompt = asked(PromptBuilder(template("qwen3"), TOKENIZER))
    raw = f"<think>\nHm.\n</think>{WRITTEN}"
    assert not restores(prompt, raw, (CALL,), at=len(raw) - 20)
    assert not restores(prompt, raw.replace('{"path"', '{ "path"'), (CALL,))
    assert not restores(prompt, "<think>\nHm.\n</think>\nDone.", (TextBlock(text="Done."),))
    assert not restores(prompt, raw, (ToolCallBlock(id="1", name="Edit", arguments='{"path":"a"}'),))


def test_what_spells_control_and_what_is_long_is_not_tried() -> None:
    prompt = asked(PromptBuilder(template("qwen3"), TOKENIZER))
    for text in ("a <|im_end|> b", "word " * 5000):
        assert not restores(prompt, f"<think>\nHm.\n</think>\n\n{text}", (TextBlock(text=text),))


def test_the_end_token_of_the_template_is_no_difference() -> None:
    builder = PromptBuilder(template("qwen3"), TOKENIZER, end_tokens=("<|im_end|>", "<|endoftext|>"))
    prompt = asked(builder)
    assert restores(prompt, "<think>\nHm.\n</think>\n\nDone.<|im_end|>", (TextBlock(text="Done."),))
    assert not restores(prompt, "<think>\nHm.\n</think>\n\nDone.<|endoftext|>", (TextBlock(text="Done."),))


def test_what_stands_before_a_turn_is_rendered_once_for_its_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    model = template("qwen3")
    builder = PromptBuilder(model, TOKENIZER)
    rendered: list[Any] = []
    render, stamps = type(model).render, ["monday"]

    def counted(self: Any, messages: Any, **given: Any) -> str:
        rendered.append(messages)
        return render(self, messages, **given)

    monkeypatch.setattr(type(model), "render", counted)
    monkeypatch.setattr(type(model), "stamp", property(lambda self: stamps[0]))

    def renderings(tool: Tool) -> int:
        go = Message(role="user", blocks=(TextBlock(text="Go."),))
        prompt = builder.build(Conversation(model="m", messages=(go,), tools=(tool,), thinking=Thinking(mode="on")))
        rendered.clear()
        assert restores(prompt, f"<think>\nHm.\n</think>{WRITTEN}", (CALL,))
        return len(rendered)

    # The opening, the call, and a sample of such calls.
    assert [renderings(TOOL), renderings(TOOL)] == [3, 0]
    # A tool of the same name may be described in other words, and a template may tell the day.
    assert renderings(Tool(name="Write", description="Writes a file.", schema=SCHEMA)) == 3
    stamps[0] = "tuesday"
    assert renderings(TOOL) == 3


# ------------------------------------------------------------------------------------- turns behind other conversations

WRITING = """{%- for message in messages -%}
{%- if message.role == "tool" -%}<|im_start|>tool\n{{ message.content }}{{ BEHIND_RESULT }}<|im_end|>\n
{%- else -%}<|im_start|>{{ message.role }}\n{{ BEFORE_TURN }}{{ message.content }}{{ BESIDE_CALLS }}
{%- for call in message.tool_calls or [] -%}{%- set made = call.function -%}
<tool_call>{"name": "{{ made.name }}", {{ CALL_ID }}"arguments": {{ made.arguments|tojson }}}</tool_call>
{%- endfor -%}{{ BEHIND_CALLS }}<|im_end|>\n
{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant\n{{ HEADER }}{%- endif -%}"""
_CALLED = "message.tool_calls is defined and message.tool_calls"
# What each writes otherwise in some situation than behind a bare question.
SMALL = {
    "plain": {},
    "ids": {"CALL_ID": "'\"id\": \"' + call.id + '\", '"},
    "results end when more follows": {"BEHIND_RESULT": '"\\n" if not loop.last else ""'},
    "text beside calls": {"BESIDE_CALLS": f'"\\n" if {_CALLED} and message.content and loop.index0 > 2 else ""'},
    "several calls": {
        "BEHIND_CALLS": f'"\\n" if {_CALLED} and message.tool_calls|length > 1 and loop.index0 > 2 else ""'
    },
    "later answers": {
        "BEFORE_TURN": '"- " if message.role == "assistant" and loop.index0 > 2 and not message.tool_calls else ""'
    },
    "obeys": {"HEADER": '"<think></think>" if "/no_think" in messages[-1].content else ""'},
    "while the loop runs": {
        "BEFORE_TURN": f'"<think></think>" if {_CALLED} and messages[-1].role == "tool" else ""',
        "HEADER": '"<think></think>"',
    },
}


def small(name: str) -> Renderer:
    """A template of ours with a habit of its own."""
    text = WRITING
    for place in ("BEHIND_RESULT", "BEFORE_TURN", "BESIDE_CALLS", "CALL_ID", "BEHIND_CALLS", "HEADER"):
        text = text.replace(place, SMALL[name].get(place, '""'))
    return ChatTemplate(text)


def said(role: str, *blocks: Block) -> Message:
    return Message(role=role, blocks=blocks)  # type: ignore[arg-type]


def words(text: str) -> TextBlock:
    return TextBlock(text=text)


def called(*names: str) -> tuple[ToolCallBlock, ...]:
    return tuple(ToolCallBlock(id=name, name="Write", arguments='{"path":"a"}') for name in names)


def brought(*names: str) -> tuple[ToolResultBlock, ...]:
    return tuple(ToolResultBlock(call_id=name, content=(words("Written."),)) for name in names)


GO, TOP = said("user", words("Go.")), said("system", words("Be brief."))
BEFORE: dict[str, tuple[Message, ...]] = {
    "a question": (GO,),
    "a question below a system text": (TOP, GO),
    "a later question": (TOP, GO, said("assistant", words("Yes.")), GO),
    "results": (TOP, GO, said("assistant", *called("call_a")), said("user", *brought("call_a"))),
    "results with words": (GO, said("assistant", *called("call_a")), said("user", *brought("call_a"), words("Well?"))),
    "several results": (GO, said("assistant", *called("call_a", "call_b")), said("user", *brought("call_a", "call_b"))),
    "a question after a loop": (
        GO,
        said("assistant", *called("call_a")),
        said("user", *brought("call_a")),
        said("assistant", words("Yes.")),
        GO,
    ),
}
TURNS: tuple[tuple[Block, ...], ...] = (
    (words("Done."),),
    called("0"),
    (words("I will."), *called("0")),
    called("0", "1"),
    (words("I will."), *called("0", "1")),
)


def went_on(turn: Sequence[Block]) -> tuple[Message, ...]:
    """The turn as its client sends it back, under ids of the gateway's, and what follows it."""
    calls = called(*(f"call_{block.id}{block.id}" for block in turn if isinstance(block, ToolCallBlock)))
    text = [block for block in turn if isinstance(block, TextBlock)]
    following = said("user", *brought(*(call.id for call in calls))) if calls else GO
    return said("assistant", *text, *calls), following, said("assistant", words("Yes.")), GO


@pytest.mark.parametrize("mode", ["on", "off"])
@pytest.mark.parametrize("name", [*FAMILIES, *SMALL])
def test_a_turn_that_needs_no_seal_is_read_again_as_it_was_written(name: str, mode: Any) -> None:
    builder = PromptBuilder(small(name) if name in SMALL else template(name), TOKENIZER)

    def built(messages: tuple[Message, ...]) -> Prompt | None:
        asked = Conversation(model="m", messages=messages, tools=(TOOL,), thinking=Thinking(mode=mode))
        try:
            return builder.build(asked)
        except TemplateFailure:
            return None

    for messages in BEFORE.values():
        prompt = built(messages)
        if prompt is None or not isinstance(prompt.foresight, Foresight):
            continue
        for turn in TURNS:
            calls = [block for block in turn if isinstance(block, ToolCallBlock)]
            written = prompt.foresight._written(turn, calls, kept=False)
            ids = TOKENIZER.encode(written or "")
            if not prompt.foresight.restores(ids, 0, turn):
                continue
            following = went_on(turn)
            # Tools that stand before the last question move on with it, and what is behind them is read anew by then.
            moves = builder.traits.tools_follow_last_user
            for end in (2, 4) if not moves else (2,) if calls else ():
                later = built((*messages, *following[:end]))
                assert later is not None
                known = [*prompt.ids, *ids]
                assert list(later.ids[: len(known)]) == known, (messages, turn, end)


@pytest.mark.parametrize(
    ("name", "before", "turn", "expected"),
    [
        *(("plain", before, turn, True) for before in BEFORE for turn in TURNS),
        ("ids", "a question", called("0"), False),
        ("ids", "a question", (words("Done."),), True),
        ("results end when more follows", "results", (words("Done."),), False),
        ("results end when more follows", "results", called("0"), False),
        ("results end when more follows", "a question", called("0"), True),
        ("text beside calls", "a question", (words("I will."), *called("0")), True),
        ("text beside calls", "results", (words("I will."), *called("0")), False),
        ("text beside calls", "results", called("0"), True),
        ("several calls", "results", called("0", "1"), False),
        ("several calls", "results", called("0"), True),
        ("later answers", "a question", (words("Done."),), True),
        ("later answers", "a later question", (words("Done."),), False),
        ("while the loop runs", "results", called("0"), False),
    ],
)
def test_a_turn_needs_a_seal_where_the_template_writes_it_otherwise_in_its_situation(
    name: str, before: str, turn: tuple[Block, ...], expected: bool
) -> None:
    builder = PromptBuilder(small(name), TOKENIZER)
    prompt = builder.build(Conversation(model="m", messages=BEFORE[before], tools=(TOOL,)))
    assert isinstance(prompt.foresight, Foresight)
    calls = [block for block in turn if isinstance(block, ToolCallBlock)]
    written = prompt.foresight._written(turn, calls, kept=False)
    assert written is not None
    assert prompt.foresight.restores(TOKENIZER.encode(written), 0, turn) is expected


def test_a_call_under_an_id_that_the_model_wrote_comes_back_under_another_one() -> None:
    prompt = PromptBuilder(small("ids"), TOKENIZER).build(Conversation(model="m", messages=(GO,), tools=(TOOL,)))
    assert prompt.foresight is not None
    written = '<tool_call>{"name": "Write", "id": "0", "arguments": {"path": "a"}}</tool_call>'
    assert not prompt.foresight.restores(TOKENIZER.encode(written), 0, called("0"))


@pytest.mark.parametrize("word", ["/think", "/no_think"])
def test_a_turn_whose_header_its_question_changed_is_not_taken_for_one_behind_any_other(word: str) -> None:
    asked = Conversation(model="m", messages=(said("user", words(f"Go. {word}")),))
    prompt = PromptBuilder(small("obeys"), TOKENIZER).build(asked)
    assert prompt.tail.endswith("<think></think>") is (word == "/no_think")
    assert prompt.foresight is not None
    assert prompt.foresight.restores(TOKENIZER.encode("Done."), 0, (words("Done."),)) is (word == "/think")


def test_turns_whose_situation_has_no_name() -> None:
    done = (words("Done."),)
    assert situation_of((), (), done) is None
    assert situation_of((TOP,), (), done) is None
    assert situation_of((GO, said("assistant", words("Yes."))), (), done) is None
    assert situation_of((GO,), (), ()) is None
    late = (GO, said("assistant", *called("a")), said("user", words("Wait.")), said("user", *brought("a")))
    assert situation_of(late, (), done) is None


def test_a_situation_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rendered = small("plain"), list[Any]()
    builder = PromptBuilder(model, TOKENIZER)
    render = type(model).render
    monkeypatch.setattr(
        type(model), "render", lambda self, messages, **how: rendered.append(messages) or render(self, messages, **how)
    )
    messages, counts = BEFORE["results"], list[int]()
    for _ in range(6):
        prompt = builder.build(Conversation(model="m", messages=messages, tools=(TOOL,)))
        rendered.clear()
        assert prompt.foresight is not None
        written = '<tool_call>{"name": "Write", "arguments": {"path": "a"}}</tool_call>'
        assert prompt.foresight.restores(TOKENIZER.encode(written), 0, called("0"))
        counts.append(len(rendered))
        messages += went_on(called(str(len(messages))))[:2]
    assert counts[0] > 0
    assert not any(counts[1:])
