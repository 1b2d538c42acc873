"""Exact replay: what the model wrote on turn N is what it reads on turn N+1, for every family and every client."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import replay_table
from families import FAMILIES, template
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replay_table import CLIENTS, TOOLS, Memory, Said, play

from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.policy import ReplayPolicy
from turnwire.prompts.prompt import RecalledTurn, Tokenizer
from turnwire.prompts.replay.splicer import TemplateSplicer
from turnwire.prompts.templates.encodings import DeepSeekEncoding, HarmonyEncoding
from turnwire.prompts.templates.messages import CallNames, dress, dress_tools
from turnwire.prompts.templates.template import ChatTemplate, Renderer, default_template
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import (
    Conversation,
    Message,
    Note,
    ReasoningBlock,
    TextBlock,
    Thinking,
    ToolCallBlock,
    ToolResultBlock,
)

RENDERERS: dict[str, Renderer] = {
    **{name: template(name) for name in FAMILIES},
    "turnwire": default_template(),
    "dsml-v3.2": DeepSeekEncoding("v3.2"),
    "dsml-v4": DeepSeekEncoding("v4"),
    "harmony": HarmonyEncoding(),
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer()


@pytest.fixture(scope="module")
def builders(tokenizer: Tokenizer) -> dict[str, PromptBuilder]:
    return {name: PromptBuilder(renderer, tokenizer) for name, renderer in RENDERERS.items()}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", RENDERERS)
def test_every_prompt_starts_with_the_one_before_and_its_output(
    builders: dict[str, PromptBuilder], name: str, client: str
) -> None:
    builder = builders[name]
    outcome = play(builder.template, builder.tokenizer, client, builder=builder)
    assert outcome.loop_breaks == []
    assert outcome.loop == 4
    if client in ("claude-code", "codex"):  # these ask for their thoughts to be kept
        assert outcome.across_breaks == []
    for prompt in outcome.prompts:
        ends = [section.end for section in prompt.sections]
        assert [section.start for section in prompt.sections] == [0, *ends[:-1]]
        assert ends[-1] == len(prompt.ids)


@pytest.mark.slow
def test_real_templates_where_they_are_at_hand(tokenizer: Tokenizer) -> None:
    given = os.environ.get("TURNWIRE_SHARED")
    places = [Path(given)] if given else [parent / "shared" for parent in Path(__file__).resolve().parents]
    for path in next((sorted((p / "templates").glob("*.jinja")) for p in places if (p / "templates").is_dir()), []):
        real = replay_table.load(path)
        builder = PromptBuilder(real, tokenizer)
        for client in CLIENTS:
            outcome = play(real, tokenizer, client, builder=builder)
            assert outcome.loop_breaks == [], (path.stem, client)


# Families in which what the template writes for a whole history is what its prompts were, step by step; the others
# number calls, drop thoughts or write another header in history than in generation.
FAITHFUL = ("qwen3", "qwen3.5", "nemotron3", "glm4.7", "minimax-m2", "deepseek-v4", "solar", "functionary")


@pytest.mark.parametrize("name", FAITHFUL)
def test_a_turn_written_as_the_template_would_write_it_gives_the_templates_own_prompt(
    builders: dict[str, PromptBuilder], name: str
) -> None:
    builder = builders[name]
    memory, turns = Memory(), replay_table.script()[:3]
    for said in turns:
        message = Message(role="assistant", blocks=said.blocks())
        raw = TemplateSplicer(builder.template, builder.traits, [message], TOOLS, []).rewritten(
            message, builder.traits.thinking_on
        )
        assert raw is not None
        said.raw, said.ids = raw, tuple(builder.tokenizer.encode(raw))
        memory.keep(said)
    conversation = replay_table.codex(turns, 0)
    spliced = builder.build(conversation, memory)
    whole = builder.build(conversation, None)
    assert sum(section.kind == "turn" for section in spliced.sections) == 3
    assert builder.tokenizer.decode(spliced.ids) == builder.tokenizer.decode(whole.ids)


def test_results_are_all_in_the_prompt_and_nothing_is_doubled(builders: dict[str, PromptBuilder]) -> None:
    for name, builder in builders.items():
        outcome = play(builder.template, builder.tokenizer, "codex", builder=builder)
        text = builder.tokenizer.decode(outcome.prompts[3].ids)
        for number in range(1, 7):
            assert text.count(f"result of call_0{number}") == 1, name
        assert text.count("Nearly done.") <= 1, name


# -------------------------------------------------------------------------------------------------- single cases


class Known:
    """Recalls one turn for every assistant message."""

    def __init__(self, turn: RecalledTurn) -> None:
        self.turn = turn

    def recall(self, message: Message, history: object = None) -> tuple[RecalledTurn | None, tuple[Note, ...]]:
        return self.turn, ()


def _user(text: str) -> Message:
    return Message(role="user", blocks=(TextBlock(text=text),))


def _loop(*blocks: object, thinking: Thinking | None = None) -> Conversation:
    calls = [block for block in blocks if isinstance(block, ToolCallBlock)]
    results = tuple(ToolResultBlock(call_id=call.id, content=(TextBlock(text="ok"),)) for call in calls)
    messages = (
        _user("Go."),
        Message(role="assistant", blocks=blocks),  # type: ignore[arg-type]
        Message(role="user", blocks=results or (TextBlock(text="And?"),)),
    )
    return Conversation(model="m", messages=messages, tools=TOOLS, thinking=thinking or Thinking(mode="on"))


def _call(number: int = 1) -> ToolCallBlock:
    return ToolCallBlock(id=f"call_{number}", name="Bash", arguments=f'{{"command":"ls {number}"}}')


@pytest.mark.parametrize("ending", ["", "<|im_end|>"])
def test_an_end_token_in_the_output_is_not_written_twice(builders: dict[str, PromptBuilder], ending: str) -> None:
    builder = builders["qwen3.5"]
    raw = "thought\n</think>\n\n<tool_call>\n<function=Bash>\n</function>\n</tool_call>" + ending
    turn = RecalledTurn(ids=builder.tokenizer.encode(raw), text=raw)
    text = builder.tokenizer.decode(builder.build(_loop(_call()), Known(turn)).ids)
    assert "</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nok" in text


def test_another_end_token_than_the_templates_stays_where_the_model_wrote_it(
    builders: dict[str, PromptBuilder],
) -> None:
    builder = builders["harmony"]
    raw = "<|channel|>final<|message|>Done.<|return|>"
    prompt = builder.build(
        _loop(TextBlock(text="Done.")), Known(RecalledTurn(ids=builder.tokenizer.encode(raw), text=raw))
    )
    assert "Done.<|return|><|start|>user<|message|>And?" in builder.tokenizer.decode(prompt.ids)


@pytest.mark.parametrize(("ending", "written"), [("", "[e~["), ("[e~[", "[e~["), ("\n", "\n[e~[")])
def test_an_end_token_of_any_spelling_is_not_written_twice(tokenizer: Tokenizer, ending: str, written: str) -> None:
    builder = PromptBuilder(template("minimax-m2"), tokenizer, end_tokens=["[e~["])
    raw = "hm\n</think>\n\nDone." + ending
    turn = RecalledTurn(ids=tokenizer.encode(raw), text=raw)
    prompt = builder.build(_loop(TextBlock(text="Done."), thinking=Thinking(history="keep")), Known(turn))
    assert f"</think>\n\nDone.{written}\n]~b]user\nAnd?" in tokenizer.decode(prompt.ids)


def test_a_turn_keeps_the_header_it_was_written_behind(builders: dict[str, PromptBuilder]) -> None:
    builder = builders["qwen3.5"]
    off, on = Thinking(mode="off"), Thinking(mode="on")
    plain = RecalledTurn(ids=builder.tokenizer.encode("Hello."), text="Hello.")
    thought = RecalledTurn(ids=builder.tokenizer.encode("hm\n</think>\n\nHello."), text="hm\n</think>\n\nHello.")

    def start(turn: RecalledTurn, thinking: Thinking) -> str:
        wish = Thinking(mode=thinking.mode, history="keep")
        return builder.tokenizer.decode(builder.build(_loop(TextBlock(text="Hello."), thinking=wish), Known(turn)).ids)

    assert "<think>\n\n</think>\n\nHello.<|im_end|>" in start(plain, off)
    assert "<think>\n\n</think>\n\nHello.<|im_end|>" in start(plain, on)
    assert "<think>\nhm\n</think>\n\nHello.<|im_end|>" in start(thought, off)
    assert "<think>\nhm\n</think>\n\nHello.<|im_end|>" in start(thought, on)
    known = RecalledTurn(ids=plain.ids, text=plain.text, tail="<|im_start|>assistant\n<think>\n")
    assert "assistant\n<think>\nHello.<|im_end|>" in start(known, on)


def test_a_turn_that_cannot_be_recalled_keeps_the_order_of_its_blocks(builders: dict[str, PromptBuilder]) -> None:
    builder = builders["qwen3.5"]
    blocks = (ReasoningBlock(text="one"), _call(1), ReasoningBlock(text="two"), TextBlock(text="so"), _call(2))
    text = builder.tokenizer.decode(builder.build(_loop(*blocks)).ids)
    places = [text.index(part) for part in ("one\n</think>", "ls 1", "<think>\ntwo\n</think>", "so", "ls 2")]
    assert places == sorted(places)
    assert text.count("<|im_start|>assistant") == 2


def test_a_partly_recalled_turn_is_completed_from_what_the_client_sent(builders: dict[str, PromptBuilder]) -> None:
    builder = builders["qwen3.5"]
    raw = "one \n</think>\n\n"
    turn = RecalledTurn(ids=builder.tokenizer.encode(raw), text=raw, complete=False)
    conversation = _loop(ReasoningBlock(text="one ", seal="s"), TextBlock(text="Listing."), _call())
    prompt = builder.build(conversation, Known(turn))
    text = builder.tokenizer.decode(prompt.ids)
    assert "<think>\none \n</think>\n\nListing." in text
    assert text.count("ls 1") == 1
    assert not any(section.kind == "turn" for section in prompt.sections)


def test_the_models_own_rule_holds_across_user_turns(builders: dict[str, PromptBuilder], tokenizer: Tokenizer) -> None:
    said = Said("Deep thought.", "Answer.", [])
    said.raw = "Deep thought.\n</think>\n\nAnswer."
    said.ids = tuple(tokenizer.encode(said.raw))
    memory = Memory()
    memory.keep(said)
    conversation = _loop(*said.blocks())
    model = PromptBuilder(RENDERERS["qwen3.5"], tokenizer, policy=ReplayPolicy(history="model"))
    keep = PromptBuilder(RENDERERS["qwen3.5"], tokenizer, policy=ReplayPolicy(history="keep"))
    drop = PromptBuilder(RENDERERS["turnwire"], tokenizer, policy=ReplayPolicy(history="drop"))
    assert "Deep thought." not in tokenizer.decode(model.build(conversation, memory).ids)
    assert "Deep thought." in tokenizer.decode(keep.build(conversation, memory).ids)
    assert "Deep thought." not in tokenizer.decode(drop.build(conversation, memory).ids)


def test_a_history_switch_is_used_to_keep_thoughts(builders: dict[str, PromptBuilder]) -> None:
    builder = builders["nemotron3"]
    conversation = _loop(ReasoningBlock(text="Deep thought."), TextBlock(text="Answer."))
    assert "Deep thought." in builder.tokenizer.decode(builder.build(conversation).ids)
    off = _loop(ReasoningBlock(text="Deep thought."), TextBlock(text="Answer."), thinking=Thinking(mode="off"))
    assert "Deep thought." not in builder.tokenizer.decode(builder.build(off).ids)


def test_calls_are_named_as_the_model_names_them(builders: dict[str, PromptBuilder]) -> None:
    builder = builders["kimi-k2"]
    conversation = _loop(_call(1), ToolCallBlock(id="functions.Bash:1", name="Bash", arguments="{}"))
    text = builder.tokenizer.decode(builder.build(conversation).ids)
    assert "<|tool_call_begin|>functions.Bash:0<|tool_call_argument_begin|>" in text
    assert "## Return of functions.Bash:0\nok" in text
    assert "## Return of functions.Bash:1\nok" in text
    assert "call_1" not in text


def test_one_call_templates_show_each_result_under_its_own_tool(builders: dict[str, PromptBuilder]) -> None:
    builder = builders["gpt-oss"]
    other = ToolCallBlock(id="call_2", name="Write", arguments='{"file_path":"x"}')
    raw = "<|channel|>commentary to=functions.Bash json<|message|>{}<|call|>"
    turn = RecalledTurn(ids=builder.tokenizer.encode(raw), text=raw)
    text = builder.tokenizer.decode(builder.build(_loop(_call(1), other), Known(turn)).ids)
    assert (
        "<|call|><|start|>functions.Bash to=assistant<|channel|>commentary<|message|>ok<|end|>"
        "<|start|>functions.Write to=assistant<|channel|>commentary<|message|>ok<|end|><|start|>assistant" in text
    )
    apart = _loop(_call(1), other)
    results = [Message(role="user", blocks=(block,)) for block in apart.messages[2].blocks]
    separate = Conversation(
        model="m", messages=(*apart.messages[:2], *results), tools=TOOLS, thinking=Thinking(mode="on")
    )
    assert builder.tokenizer.decode(builder.build(separate, Known(turn)).ids) == text
    # Not recalled: each call stands before its result.
    alone = builder.tokenizer.decode(builder.build(_loop(_call(1), other)).ids)
    assert alone.index("functions.Bash to=assistant") < alone.index("to=functions.Write")


def test_a_template_that_refuses_the_splice_still_gets_a_prompt(tokenizer: Tokenizer) -> None:
    # Calls show only when the conversation is long: what was probed does not hold any more.
    shy = ChatTemplate(
        "{%- for m in messages -%}{{ '<' + m.role + '>' + m.content }}"
        "{%- if m.tool_calls and 'Go.' not in messages[0].content -%}{{ m.tool_calls | tojson }}{%- endif -%}"
        "{%- endfor -%}{%- if add_generation_prompt -%}{{ '<assistant>' }}{%- endif -%}"
    )
    builder = PromptBuilder(shy, tokenizer)
    turn = RecalledTurn(ids=tokenizer.encode("raw"), text="raw")
    prompt = builder.build(_loop(_call()), Known(turn))
    assert "replay.not_spliced" in {note.code for note in prompt.notes}
    assert tokenizer.decode(prompt.ids) == "<user>Go.<assistant><tool>ok<assistant>"


def test_dressing_gives_templates_what_they_read() -> None:
    traits = PromptBuilder(RENDERERS["functionary"], load_tokenizer()).traits
    notes: list[Note] = []
    dressed = dress(_loop(_call()).messages, traits, CallNames("any"), notes)
    assert dressed[1]["tool_calls"][0]["function"]["arguments"] == '{"command":"ls 1"}'
    assert dressed[2] == {"role": "tool", "tool_call_id": "call_1", "name": "Bash", "content": "ok"}
    assert [tool["function"]["name"] for tool in dress_tools(TOOLS)] == ["Write", "Bash"]
    assert notes == []


# ------------------------------------------------------------------------------------------------------- the law

_WORDS = st.text(
    alphabet=st.one_of(st.sampled_from(list('<>|{}[]"\\/ \n\t=:é日🙂')), st.characters(blacklist_categories=("Cs",))),
    max_size=40,
)
_MARKS = st.sampled_from(["<|im_end|>", "</think>", "<tool_call>", "</tool_call>", "<|im_start|>user\n", "\n\n", " "])
_OUTPUT = st.lists(st.one_of(_WORDS, _MARKS), min_size=1, max_size=6).map("".join).filter(bool)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(
    name=st.sampled_from(sorted(RENDERERS)),
    outputs=st.lists(_OUTPUT, min_size=2, max_size=4),
    results=st.lists(_WORDS, min_size=4, max_size=4),
    keep=st.booleans(),
)
def test_whatever_the_model_writes_comes_back(
    builders: dict[str, PromptBuilder], name: str, outputs: list[str], results: list[str], keep: bool
) -> None:
    """Any output at all, also one that imitates the template's own marks, in a tool loop."""
    builder = builders[name]
    turns: dict[str, RecalledTurn] = {}

    class ById:
        def recall(self, message: Message, history: object = None) -> tuple[RecalledTurn | None, tuple[Note, ...]]:
            call = next(block for block in message.blocks if isinstance(block, ToolCallBlock))
            return turns[call.id], ()

    messages = [_user("Go.")]
    before: list[int] = []
    wish = Thinking(mode="on", history="keep" if keep else None)
    for number, output in enumerate(outputs):
        prompt = builder.build(Conversation(model="m", messages=tuple(messages), tools=TOOLS, thinking=wish), ById())
        ids = list(prompt.ids)
        assert ids[: len(before)] == before
        call = _call(number)
        said = builder.tokenizer.encode(output)
        turns[call.id] = RecalledTurn(ids=said, text=output, tail=prompt.tail)
        messages.append(Message(role="assistant", blocks=(ReasoningBlock(text="hm"), call)))
        content = (TextBlock(text=results[number]),)
        messages.append(Message(role="user", blocks=(ToolResultBlock(call_id=call.id, content=content),)))
        before = ids + said
