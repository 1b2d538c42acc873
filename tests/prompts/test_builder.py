"""The builder: sections, tails, prefilled answers, and what is remembered from prompt to prompt."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from datetime import datetime

import pytest
from families import FAMILIES, template
from replay_table import TOOLS, Memory, codex, play, script, speak

from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.prompt import Detokenizer, Prompt, Tokenizer
from turnwire.prompts.replay.tokenized_text import TokenizedText, TokenizedTextCache
from turnwire.prompts.size import Density
from turnwire.prompts.templates.template import ChatTemplate, TemplateFailure, default_template
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import (
    Conversation,
    ImageBlock,
    Message,
    OpaqueBlock,
    ReasoningBlock,
    TextBlock,
    Thinking,
    Tool,
    ToolCallBlock,
    ToolResultBlock,
)


class Counting:
    """A tokenizer that counts the characters it was given."""

    def __init__(self, inner: Tokenizer) -> None:
        self._inner = inner
        self.characters = 0

    def encode(self, text: str) -> list[int]:
        self.characters += len(text)
        return self._inner.encode(text)

    def encode_literal(self, text: str, literal: Sequence[tuple[int, int]]) -> list[int]:
        self.characters += len(text)
        return self._inner.encode_literal(text, literal)

    def may_cut(self, text: str, at: int) -> bool:
        return self._inner.may_cut(text, at)

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        return self._inner.decode(ids, skip_special=skip_special)

    def detokenizer(self, *, skip_special: bool = False) -> Detokenizer:
        return self._inner.detokenizer(skip_special=skip_special)

    @property
    def special_tokens(self) -> dict[str, int]:
        return self._inner.special_tokens

    @property
    def control_tokens(self) -> dict[str, int]:
        return self._inner.control_tokens

    @property
    def density(self) -> Density | None:
        return self._inner.density

    @property
    def vocab_size(self) -> int:
        return self._inner.vocab_size


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer()


@pytest.fixture(scope="module")
def builder(tokenizer: Tokenizer) -> PromptBuilder:
    return PromptBuilder(default_template(), tokenizer)


def user(text: str) -> Message:
    return Message(role="user", blocks=(TextBlock(text=text),))


def section_texts(prompt: Prompt, tokenizer: Tokenizer) -> list[tuple[str, int, str]]:
    return [(part.kind, part.index, tokenizer.decode(prompt.ids[part.start : part.end])) for part in prompt.sections]


def test_sections_name_every_part(builder: PromptBuilder, tokenizer: Tokenizer) -> None:
    memory, turns = Memory(), script()[:1]
    speak(turns[0], builder, thinking=True)
    memory.keep(turns[0])
    prompt = builder.build(codex(turns, 0), memory)
    found = section_texts(prompt, tokenizer)
    kinds = [(kind, index) for kind, index, _ in found]
    assert kinds == [
        ("frame", 0),
        ("tools", 0),
        ("tools", 1),
        ("system", 0),
        ("message", 1),
        ("message", 2),
        ("generation", 3),
        ("turn", 3),
        ("frame", 4),
        ("message", 4),
        ("generation", 5),
    ]
    texts = {(kind, index): text for kind, index, text in found}
    assert '"Write"' in texts["tools", 0]
    assert "You are a coding agent." in texts["system", 0]
    assert texts["message", 2].startswith("<|im_start|>user\nGo.")
    assert "result of call_01" in texts["message", 4]
    assert "result of call_02" in texts["message", 4]
    assert texts["generation", 5] == prompt.tail == "<|im_start|>assistant\n<think>\n"


@pytest.mark.parametrize("name", FAMILIES)
def test_the_tail_is_the_end_of_the_prompt(tokenizer: Tokenizer, name: str) -> None:
    family = PromptBuilder(template(name), tokenizer)
    for prompt in play(family.template, tokenizer, "claude-code", builder=family).prompts:
        assert tokenizer.decode(prompt.ids).endswith(prompt.tail)
    first = family.build(Conversation(model="m", messages=(user("Hi"),)))
    assert first.tail == family.traits.tail


def test_an_answer_that_has_begun_is_continued(builder: PromptBuilder, tokenizer: Tokenizer) -> None:
    messages = (user("Say A."), Message(role="assistant", blocks=(TextBlock(text="The letter"),)))
    prompt = builder.build(Conversation(model="m", messages=messages))
    assert tokenizer.decode(prompt.ids).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\nThe letter")
    assert prompt.tail.endswith("</think>\n\nThe letter")
    assert prompt.sections[-1].end == len(prompt.ids)


def test_only_what_is_new_is_tokenized(tokenizer: Tokenizer) -> None:
    counting = Counting(tokenizer)
    builder = PromptBuilder(default_template(), counting)
    memory, turns = Memory(), script()
    for said in turns[:3]:
        speak(said, builder, thinking=True)
        memory.keep(said)
    system = Message(role="system", blocks=(TextBlock(text="word " * 5000),))

    def talk(count: int) -> Conversation:
        given = codex(turns[:count], 0)
        return Conversation(model="m", messages=(system, *given.messages), tools=TOOLS, thinking=given.thinking)

    counting.characters = 0
    builder.build(talk(2), memory)
    assert counting.characters > 25_000
    counting.characters = 0
    again = builder.build(talk(3), memory)
    assert counting.characters < 1_500
    counting.characters = 0
    assert builder.build(talk(3), memory) == again
    assert counting.characters == 0


def test_a_new_day_shows_in_templates_that_tell_the_date(tokenizer: Tokenizer) -> None:
    today = [datetime(2026, 1, 2)]
    source = "{{ strftime_now('%d %B') }}: {{ messages[0].content }}"
    dated = PromptBuilder(ChatTemplate(source, clock=lambda: today[0]), tokenizer)
    talk = Conversation(model="m", messages=(user("report"),))
    assert tokenizer.decode(dated.build(talk).ids) == "02 January: report"
    today[0] = datetime(2026, 1, 3)
    assert tokenizer.decode(dated.build(talk).ids) == "03 January: report"


def test_the_memory_of_pieces_is_bounded() -> None:
    memory = TokenizedTextCache(max_tokens=2_000)
    for number in range(50):
        memory.put(bytes([number]), TokenizedText(ids=array("I", range(100)), sections=()))
    assert len(memory) == 5
    assert memory.get(bytes([49])) is not None
    assert memory.get(bytes([0])) is None


def test_what_has_no_place_in_a_prompt_is_noted(builder: PromptBuilder, tokenizer: Tokenizer) -> None:
    picture = ImageBlock(media_type="image/png", data="aGk=")
    strange = OpaqueBlock(wire_type="search_result", payload="{}")
    prompt = builder.build(Conversation(model="m", messages=(Message(role="user", blocks=(picture, strange)),)))
    assert {note.code for note in prompt.notes} == {"content.image_omitted", "content.opaque_omitted"}
    assert "[image]" in tokenizer.decode(prompt.ids)


def test_custom_tools_and_unparsable_arguments_are_shown(builder: PromptBuilder, tokenizer: Tokenizer) -> None:
    patch = Tool(name="apply", description="Patches.", kind="custom", grammar="start: /.+/", grammar_syntax="lark")
    calls = (
        ToolCallBlock(id="a", name="apply", arguments="*** Begin", kind="custom"),
        ToolCallBlock(id="b", name="apply", arguments='{"broken', kind="function"),
        ToolCallBlock(id="c", name="apply", arguments='"text"', kind="function"),
    )
    results = tuple(ToolResultBlock(call_id=call.id, is_error=True) for call in calls)
    messages = (user("go"), Message(role="assistant", blocks=calls), Message(role="user", blocks=results))
    prompt = builder.build(Conversation(model="m", messages=messages, tools=(patch,)))
    text = tokenizer.decode(prompt.ids)
    assert "The input follows this lark grammar:\\nstart: /.+/" in text
    assert "<parameter=input>\n*** Begin\n</parameter>" in text
    assert '<parameter=input>\n{"broken\n</parameter>' in text
    assert [note.code for note in prompt.notes] == ["replay.arguments_not_json"]


def test_thoughts_that_a_template_cannot_show_are_noted(tokenizer: Tokenizer) -> None:
    builder = PromptBuilder(template("qwen2.5"), tokenizer)
    turn = Message(role="assistant", blocks=(ReasoningBlock(text="hm"), TextBlock(text="yes")))
    prompt = builder.build(Conversation(model="m", messages=(user("a"), turn, user("b"))))
    assert "replay.reasoning_unrendered" in {note.code for note in prompt.notes}


def test_a_refused_conversation_says_why(tokenizer: Tokenizer) -> None:
    source = (
        "{{ messages[0].content }}{% if messages | length > 2 %}{{ raise_exception('only on Sundays') }}{% endif %}"
    )
    builder = PromptBuilder(ChatTemplate(source), tokenizer)
    with pytest.raises(TemplateFailure, match="only on Sundays"):
        builder.build(Conversation(model="m", messages=(user("a"), user("b"), user("c"))))


def test_nothing_of_the_request_but_its_words_reaches_the_prompt(builder: PromptBuilder, tokenizer: Tokenizer) -> None:
    turn = Message(
        role="assistant",
        blocks=(
            ReasoningBlock(text="hm", seal="SEALED"),
            ToolCallBlock(id="toolu_01SECRET", name="Bash", arguments="{}", namespace="NAMESPACE"),
        ),
    )
    result = Message(role="user", blocks=(ToolResultBlock(call_id="toolu_01SECRET", content=(TextBlock(text="ok"),)),))
    talk = Conversation(model="MODEL", messages=(user("a"), turn, result), thinking=Thinking(mode="on"))
    text = tokenizer.decode(builder.build(talk).ids)
    for secret in ("SEALED", "SECRET", "NAMESPACE", "MODEL"):
        assert secret not in text
