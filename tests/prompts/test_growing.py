"""What is known is not done again, and nobody can tell: a builder that remembers and one that does not give equal
prompts, whatever happens to the conversation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
import pytest
from families import FAMILIES, template
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.message_cache import MessageCache
from turnwire.prompts.prompt import HistoryKey, Prompt, RecalledTurn
from turnwire.prompts.replay.assembled import AssembledPrompt, AssembledPromptCache
from turnwire.prompts.replay.growing_text import Rendering, RenderingCache, grown
from turnwire.prompts.templates.control_text import ControlText
from turnwire.prompts.templates.template import (
    ChatTemplate,
    Renderer,
    TemplateFailure,
    TemplateMessage,
    default_template,
)
from turnwire.prompts.tokenizers.load import HFTokenizer, load_tokenizer
from turnwire.prompts.tokenizers.part_cache import PrefixTokenizer
from turnwire.token_ids import TokenIds, ids_json
from turnwire.turns import (
    Conversation,
    ImageBlock,
    Message,
    Note,
    ReasoningBlock,
    Role,
    TextBlock,
    Thinking,
    Tool,
    ToolCallBlock,
    ToolResultBlock,
)

WORDS = ("go", "look", "a < b", "Hello there.\nSecond line", "<|im_end|>\n<|im_start|>system", "think", "", "x" * 90)
CHAT = ("go", "user", "Hello there.\nSecond line", "<tool_response>\nx\n</tool_response>", "[INST] no", "a", "y" * 60)
CHAT += ("# Title\n\n- one", "- two", "`code`", '"quoted"', "/no_think", "\\n", " blank")
# Of the tokens by which models are controlled: whole, begun, ended, and what a template may complete.
CONTROL = (
    "Say <|im_end|>\n<|im_start|>system",
    "It <think>s</think>. ",
    "See </",
    "|> is an end ",
    "\ufdd0 ",
    "think",
    "go ",
)


@cache
def own() -> HFTokenizer:
    return load_tokenizer()


class Remembered:
    """Recalls what it was told to, under one scope; some turns with a note, some not at all."""

    def __init__(self, chance: random.Random, scope: str) -> None:
        self._chance = chance
        self._known: dict[Message, tuple[RecalledTurn | None, tuple[Note, ...]]] = {}
        self.scope = scope

    def recall(
        self, message: Message, history: HistoryKey | None = None
    ) -> tuple[RecalledTurn | None, tuple[Note, ...]]:
        if message not in self._known:
            raw = f"Hm.\n</think>\n\n{message.text}<|im_end|>"
            turn = RecalledTurn(ids=own().encode(raw), text=raw)
            lot = self._chance.random()
            note = (Note("replay.missing", "not there"),)
            self._known[message] = (turn, ()) if lot < 0.7 else (turn, note) if lot < 0.8 else (None, note)
        return self._known[message]


class Unscoped:
    """The same memory, of which nothing may be taken for granted."""

    def __init__(self, inner: Remembered) -> None:
        self._inner = inner

    def recall(
        self, message: Message, history: HistoryKey | None = None
    ) -> tuple[RecalledTurn | None, tuple[Note, ...]]:
        return self._inner.recall(message, history)


class Story:
    """A conversation that grows, is edited, cut, and gets other tools and wishes."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.messages: list[Message] = [self.said("system"), self.said("user")]
        self.tools: tuple[Tool, ...] = (Tool(name="look", description="Looks."), Tool(name="go"))
        self.thinking = Thinking()
        self.calls = 0

    def words(self) -> str:
        return self.chance.choice(WORDS) + (f" {self.chance.randrange(99)}" if self.chance.random() < 0.7 else "")

    def said(self, role: str) -> Message:
        return Message(role=role, blocks=(TextBlock(text=self.words()),))  # type: ignore[arg-type]

    def exchange(self) -> None:
        chance = self.chance
        thought = (ReasoningBlock(text=self.words()),) if chance.random() < 0.5 else ()
        if chance.random() < 0.6:
            made = []
            for _ in range(chance.choice((1, 1, 2))):
                self.calls += 1
                made.append(ToolCallBlock(id=f"call{self.calls:05d}", name="look", arguments='{"q": "a\\u003c"}'))
            words = (TextBlock(text=self.words()),) if chance.random() < 0.5 else ()
            self.messages.append(Message(role="assistant", blocks=(*thought, *words, *made)))
            results = [
                ToolResultBlock(call_id=call.id, content=(TextBlock(text=self.words()),)) for call in reversed(made)
            ]
            extra = (TextBlock(text=self.words()),) if chance.random() < 0.2 else ()
            self.messages.append(Message(role="user", blocks=(*results, *extra)))
        else:
            self.messages.append(Message(role="assistant", blocks=(*thought, TextBlock(text=self.words() or "Yes."))))
            image = (ImageBlock(url="u"),) if chance.random() < 0.1 else ()
            self.messages.append(Message(role="user", blocks=(TextBlock(text=self.words()), *image)))

    def happen(self) -> None:
        chance, lot = self.chance, self.chance.random()
        place = chance.randrange(len(self.messages))
        if lot < 0.6 or len(self.messages) < 4:
            self.exchange()
        elif lot < 0.7:
            role = self.messages[place].role
            self.messages[place] = self.said(role)
        elif lot < 0.76:
            del self.messages[max(2, place) :]
        elif lot < 0.8:
            self.messages.insert(place, self.said(chance.choice(("user", "system"))))
        elif lot < 0.84:
            del self.messages[place]
        elif lot < 0.88:
            self.tools = self.tools[::-1] if chance.random() < 0.5 else self.tools[:1]
        elif lot < 0.94:
            self.thinking = Thinking(mode=chance.choice(("on", "off", None)), history=chance.choice((None, "keep")))
        else:
            self.messages.append(self.said("assistant"))

    def now(self) -> Conversation:
        return Conversation(model="m", messages=tuple(self.messages), tools=self.tools, thinking=self.thinking)


def outcome(builder: PromptBuilder, asked: Conversation, recall: object) -> Prompt | str:
    try:
        prompt = builder.build(asked, recall)  # type: ignore[arg-type]
    except TemplateFailure as failure:
        return str(failure)
    # Each is asked for its text, as an engine does it, so that the next one grows from that.
    assert msgspec.json.decode(ids_json(prompt.ids)) == list(prompt.ids)
    assert [section.start for section in prompt.sections[1:]] == [section.end for section in prompt.sections[:-1]]
    return msgspec.structs.replace(prompt, foresight=None)  # which is bound to its builder


@cache
def remembering(name: str) -> PromptBuilder:
    renderer = default_template() if name == "own" else template(name)
    return PromptBuilder(renderer, PrefixTokenizer(own()))


QUICK = ("own", "qwen3", "gpt-oss", "kimi-k2-thinking")
OTHERS = ("qwen2.5", "glm4.7", "mistral", "llama3", "gemma2")


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
@example(116724)  # a tool's name that only an earlier user message spelled
def test_what_is_remembered_changes_nothing(name: str, seed: int) -> None:
    assert name == "own" or name in FAMILIES
    chance = random.Random(seed)
    story, recall = Story(chance), Remembered(random.Random(seed + 1), f"scope {seed}")
    warm = remembering(name)
    for _ in range(10):
        asked = story.now()
        fresh = PromptBuilder(warm.template, own(), traits=warm.traits)
        assert outcome(warm, asked, recall) == outcome(fresh, asked, Unscoped(recall))
        assert outcome(warm, asked, None) == outcome(fresh, asked, None)
        story.happen()


class Watched:
    """A template, and how many messages it was shown last."""

    def __init__(self, inner: Renderer) -> None:
        self._inner = inner
        self.shown = 0

    @property
    def end_tokens(self) -> tuple[str, ...]:
        return self._inner.end_tokens

    @property
    def stamp(self) -> str:
        return self._inner.stamp

    def render(self, messages: Sequence[TemplateMessage], **how: Any) -> str:
        self.shown = max(self.shown, len(messages))
        return self._inner.render(messages, **how)


class Chat(Story):
    """A conversation that only goes on, with words that templates take for something else now and then."""

    choice = CHAT

    def words(self) -> str:
        said = f"{self.chance.choice(self.choice)}{self.chance.randrange(99)}"
        return said[: -self.chance.randrange(1, 3)] if self.chance.random() < 0.2 else said


class ControlChat(Chat):
    """The same about control tokens, which tools may speak of too."""

    choice = (*CONTROL, *CHAT)

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        if chance.random() < 0.5:
            schema = {"type": "object", "properties": {"q": {"type": "string", "description": self.words()}}}
            self.tools = (Tool(name="look", description=self.words(), schema=schema), *self.tools[1:])


@pytest.mark.parametrize("chat", [Chat, ControlChat])
@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=2, deadline=None)
@given(st.integers(0, 2**32))
def test_a_conversation_that_goes_on_reads_as_if_it_were_shown_as_a_whole(
    name: str, chat: type[Chat], seed: int
) -> None:
    story, warm = chat(random.Random(seed)), remembering(name)
    for _ in range(12):
        fresh = PromptBuilder(warm.template, own(), traits=warm.traits)
        asked = story.now()
        assert outcome(warm, asked, None) == outcome(fresh, asked, None)
        story.exchange()


@pytest.mark.parametrize("chat", [Chat, ControlChat])
@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=2, deadline=None)
@given(st.integers(0, 2**32))
def test_a_conversation_that_is_edited_reads_as_if_it_were_shown_as_a_whole(
    name: str, chat: type[Chat], seed: int
) -> None:
    chance = random.Random(seed)
    story, warm = chat(chance), remembering(name)
    for _ in range(14):
        fresh = PromptBuilder(warm.template, own(), traits=warm.traits)
        asked = story.now()
        assert outcome(warm, asked, None) == outcome(fresh, asked, None)
        if chance.random() < 0.7:
            story.exchange()
        for _ in range(chance.choice((0, 1, 1, 1, 2))):
            place = chance.randrange(len(story.messages))
            role, text = story.messages[place].role, story.messages[place].text
            words = (story.words(), text[::-1], f"{text}\n{story.words()}", text[:-1], f"{story.words()}\n{text}")
            if not any(isinstance(block, ToolCallBlock | ToolResultBlock) for block in story.messages[place].blocks):
                story.messages[place] = Message(role=role, blocks=(TextBlock(text=chance.choice(words)),))


@pytest.mark.parametrize("said", ["Be brief.", "Never write <|im_start|>."])
def test_only_what_is_new_is_shown_to_the_template(said: str) -> None:
    watched = Watched(template("qwen3"))
    builder = PromptBuilder(watched, PrefixTokenizer(own()))
    assert builder.traits.fixed_history
    messages: tuple[Message, ...] = (Message(role="system", blocks=(TextBlock(text=said),)),)
    for step in range(30):
        messages = (*messages, Message(role="user", blocks=(TextBlock(text=f"Question {step}"),)))
        watched.shown = 0
        builder.build(Conversation(model="m", messages=messages))
        assert watched.shown <= 8
        messages = (*messages, Message(role="assistant", blocks=(TextBlock(text=f"Answer {step}"),)))


OBEYING = """{%- set ns = namespace(thinks=true) -%}
{%- for message in messages -%}
{%- if message.role == "user" and "/no_think" in message.content -%}{%- set ns.thinks = false -%}
{%- elif message.role == "user" and "/think" in message.content -%}{%- set ns.thinks = true -%}{%- endif -%}
{{- "<|im_start|>" + message.role + "\\n" + message.content + "<|im_end|>\\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|im_start|>assistant\\n" -}}{%- if not ns.thinks -%}<think></think>{%- endif -%}
{%- endif -%}"""
WORDY = """{%- for message in messages -%}{{- message.role + ": " + message.content|trim + "\\n\\n" -}}
{%- for call in message.tool_calls or [] -%}{{- "assistant: " + call.function|tojson -}}{%- endfor -%}{%- endfor -%}
{%- if add_generation_prompt -%}assistant:{%- endif -%}"""


def test_a_word_of_an_earlier_question_is_obeyed_for_as_long_as_the_template_does() -> None:
    builder = PromptBuilder(ChatTemplate(OBEYING), PrefixTokenizer(own()))
    messages: tuple[Message, ...] = ()
    for step in range(12):
        word = {2: " /no_think", 8: " /think"}.get(step, "")
        messages = (*messages, Message(role="user", blocks=(TextBlock(text=f"Question {step}{word}"),)))
        prompt = builder.build(Conversation(model="m", messages=messages))
        assert own().decode(prompt.ids).endswith("<think></think>") is (2 <= step < 8), step
        messages = (*messages, Message(role="assistant", blocks=(TextBlock(text=f"Answer {step}"),)))


@pytest.mark.parametrize(
    "told",
    [
        ("Which?\n- a\n- b", "- a\nplease", "a", "- b", "ok", "Thanks"),
        ("Which one?\n1\n2", "1\nplease", "", "2", "ok", "Thanks"),
    ],
)
def test_an_answer_that_lists_what_is_asked_next_is_not_taken_for_the_question(told: tuple[str, ...]) -> None:
    warm, fresh = (PromptBuilder(template("qwen3"), PrefixTokenizer(own())) for _ in range(2))
    told = ("Q one", "A one", "Q two", "A two", "Q three", "A three", "Q four", *told)
    roles = ("user", "assistant") * len(told)
    said = [Message(role=role, blocks=(TextBlock(text=text),)) for role, text in zip(roles, told, strict=False)]  # type: ignore[arg-type]
    for end in range(1, len(said) + 1, 2):
        warm.build(Conversation(model="m", messages=tuple(said[:end])))
    whole = Conversation(model="m", messages=tuple(said))
    assert outcome(warm, whole, None) == outcome(fresh, whole, None)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_short_words_that_come_again_and_again_are_told_apart(seed: int) -> None:
    dice, warm = random.Random(seed), remembering("qwen3")
    said: list[Message] = []
    for _ in range(12):
        words = "\n".join(dice.choice(("a", "1", "", "- a")) for _ in range(dice.choice((1, 1, 2, 3))))
        said.append(Message(role="user" if len(said) % 2 == 0 else "assistant", blocks=(TextBlock(text=words),)))
        if len(said) % 2:
            asked = Conversation(model="m", messages=tuple(said))
            assert outcome(warm, asked, None) == outcome(
                PromptBuilder(warm.template, own(), traits=warm.traits), asked, None
            )


ENDLESS = """{%- for message in messages -%}
{{- "<|im_start|>" + message.role + "\\n" + message.content -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|im_start|>assistant\\n" -}}{%- endif -%}"""


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("word", ["im", "|", "start"])
def test_words_that_are_found_inside_a_control_token_are_counted_as_in_the_whole(word: str, edited: bool) -> None:
    warm = PromptBuilder(ChatTemplate(ENDLESS), PrefixTokenizer(own()))
    words = ["One", "Two", "Three", "Four", "Five\n\n", word, "Seven"]
    for end in (5, 7):
        if edited and end == 7:
            words[2] = "Another"
        roles = ("user", "assistant") * 4
        told = [Message(role=role, blocks=(TextBlock(text=text),)) for role, text in zip(roles, words, strict=False)]  # type: ignore[arg-type]
        asked = Conversation(model="m", messages=tuple(told[:end]))
        fresh = PromptBuilder(warm.template, own(), traits=warm.traits)
        assert outcome(warm, asked, None) == outcome(fresh, asked, None)


def test_without_control_tokens_the_sections_of_a_prompt_leave_no_gap() -> None:
    warm = PromptBuilder(ChatTemplate(WORDY), PrefixTokenizer(own()))
    for seed in range(12):
        story = ControlChat(random.Random(seed))
        for _ in range(12):
            asked, fresh = story.now(), PromptBuilder(warm.template, own(), traits=warm.traits)
            assert outcome(warm, asked, None) == outcome(fresh, asked, None)
            story.exchange()


@pytest.mark.parametrize("name", ["own", "qwen3"])
@pytest.mark.parametrize("said", ["Be brief.", "Never write <|im_start|> or </think>."])
def test_what_an_agent_tells_every_conversation_is_tokenized_once(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm = PromptBuilder(remembering(name).template, PrefixTokenizer(own()), traits=remembering(name).traits)
    asked_for: list[str] = []
    encode = PrefixTokenizer.encode
    monkeypatch.setattr(PrefixTokenizer, "encode", lambda self, text: asked_for.append(text) or encode(self, text))
    system = Message(role="system", blocks=(TextBlock(text=f"{said} {'Look twice. ' * 400}"),))
    tools = (Tool(name="look", description="Looks."), Tool(name="go"))
    for question in ("Who?", "What is <think>?", "Where?\n\nAnd why?", "Who?", "|> is how it ends"):
        asked = (system, Message(role="user", blocks=(TextBlock(text=question),)))
        conversation = Conversation(model="m", messages=asked, tools=tools)
        asked_for.clear()
        prompt = outcome(warm, conversation, None)
        assert question == "Who?" or sum(map(len, asked_for)) < len(system.text)
        assert prompt == outcome(PromptBuilder(warm.template, own(), traits=warm.traits), conversation, None)


def test_words_that_spell_control_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = PromptBuilder(template("qwen3"), PrefixTokenizer(own()))
    looked: list[str] = []
    places = ControlText.places
    monkeypatch.setattr(ControlText, "places", lambda self, text: looked.append(text) or places(self, text))
    tools = (Tool(name="look", description="Looks for <think>."), Tool(name="go"))
    messages: tuple[Message, ...] = (Message(role="system", blocks=(TextBlock(text="Never write <|im_end|>."),)),)
    for step in range(10):
        messages = (*messages, Message(role="user", blocks=(TextBlock(text=f"Question {step}"),)))
        before = len(looked)
        builder.build(Conversation(model="m", messages=messages, tools=tools))
        assert (len(looked) > before) is (step == 0)
        messages = (*messages, Message(role="assistant", blocks=(TextBlock(text=f"Answer {step}"),)))


def test_a_turn_recalled_under_one_scope_is_not_taken_for_another() -> None:
    builder = PromptBuilder(default_template(), own())
    raw = "The secret pin of Alice.\n</think>\n\nDone.<|im_end|>"

    class Knows:
        def __init__(self, scope: str, knows: bool) -> None:
            self.scope, self._knows = scope, knows

        def recall(
            self, message: Message, history: HistoryKey | None = None
        ) -> tuple[RecalledTurn | None, tuple[Note, ...]]:
            return (RecalledTurn(ids=own().encode(raw), text=raw) if self._knows else None), ()

    def said(role: str, text: str) -> Message:
        return Message(role=role, blocks=(TextBlock(text=text),))  # type: ignore[arg-type]

    messages = (said("user", "My pin is 1234"), said("assistant", "Done."), said("user", "More"))
    longer = (*messages, said("assistant", "Done."), said("user", "And more"))
    for knows, scope in ((True, "alice"), (False, "bob")):
        for asked in (messages, longer):
            prompt = builder.build(Conversation(model="m", messages=asked), Knows(scope, knows))
            assert ("secret" in own().decode(prompt.ids)) is knows


def test_a_growing_conversation_is_neither_asked_for_nor_tokenized_again() -> None:
    builder = PromptBuilder(default_template(), own())
    asked_for: list[Message] = []

    class Counting(Remembered):
        def recall(
            self, message: Message, history: HistoryKey | None = None
        ) -> tuple[RecalledTurn | None, tuple[Note, ...]]:
            asked_for.append(message)
            raw = f"Hm.\n</think>\n\n{message.text}<|im_end|>"
            return RecalledTurn(ids=own().encode(raw), text=raw), ()

    recall = Counting(random.Random(1), "s")
    messages: tuple[Message, ...] = (Message(role="user", blocks=(TextBlock(text="Go 0"),)),)
    for step in range(12):
        before = len(asked_for)
        builder.build(Conversation(model="m", messages=messages), recall)
        assert len(asked_for) - before == (1 if step else 0)
        answer = Message(role="assistant", blocks=(TextBlock(text=f"Answer {step}"),))
        messages = (*messages, answer, Message(role="user", blocks=(TextBlock(text=f"Go {step + 1}"),)))


# Where the words of a message do not follow its control token at once, and where what precedes them looks like one.
WIDE = """{%- for message in messages -%}
{{- "<|im_start|>" + message.role + "\\n\\n" + message.content + "<|im_end|>\\n" -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|im_start|>assistant\\n\\n" -}}{%- endif -%}"""
NESTED = WIDE.replace("message.content", "'<said by=' + message.role + '>\\n<words>\\n' + message.content + '</words>'")
TOOLS_LAST = """{%- for message in messages -%}
{%- if loop.last -%}{{- "<|im_start|>tools\\n" + tools|tojson + "<|im_end|>\\n" -}}{%- endif -%}
{{- "<|im_start|>" + message.role + "\\n\\n" + message.content + "<|im_end|>\\n" -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|im_start|>assistant\\n\\n" -}}{%- endif -%}"""
LAYOUTS: dict[str, Renderer] = {
    "own": default_template(),
    "wide": ChatTemplate(WIDE),
    "nested": ChatTemplate(NESTED),
    "tools last": ChatTemplate(TOOLS_LAST),
}
OFFERED = (Tool(name="look", description="Looks."), Tool(name="go"))


def spied(builder: PromptBuilder, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that its tokenizer is given from now on."""
    encode, encoded = builder.tokenizer.encode, list[str]()

    def seen(text: str) -> list[int]:
        encoded.append(text)
        return encode(text)

    monkeypatch.setattr(builder.tokenizer, "encode", seen)
    return encoded


@pytest.mark.parametrize("name", ["own", "wide", "nested"])
def test_neither_the_last_question_nor_the_generation_header_is_tokenized_again(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    builder = PromptBuilder(LAYOUTS[name], PrefixTokenizer(own()))
    encoded = spied(builder, monkeypatch)
    messages: tuple[Message, ...] = (Message(role="user", blocks=(TextBlock(text="Question 0"),)),)
    for step in range(8):
        encoded.clear()
        prompt = builder.build(Conversation(model="m", messages=messages))
        anew = PromptBuilder(LAYOUTS[name], own()).build(Conversation(model="m", messages=messages))
        assert prompt.ids == anew.ids
        if step > 1:
            assert "".join(encoded).count("Question") == "".join(encoded).count(f"Question {step}") == 1
            assert not [text for text in encoded if text.endswith(prompt.tail)]
        answer = Message(role="assistant", blocks=(TextBlock(text=f"Answer {step}"),))
        messages = (*messages, answer, Message(role="user", blocks=(TextBlock(text=f"Question {step + 1}"),)))


@pytest.mark.parametrize("edit", ["Another question 8.", "Question 8, and more of it.", "Question nine"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_what_stands_behind_an_edit_is_not_tokenized_again(
    monkeypatch: pytest.MonkeyPatch, name: str, edit: str
) -> None:
    builder = PromptBuilder(LAYOUTS[name], PrefixTokenizer(own()))

    def said(role: str, text: str) -> Message:
        return Message(role=role, blocks=(TextBlock(text=text),))  # type: ignore[arg-type]

    messages = [said(("user", "assistant")[place % 2], f"Question {place} {'word ' * 200}") for place in range(21)]
    builder.build(Conversation(model="m", messages=tuple(messages), tools=OFFERED))
    messages[8] = said("user", edit)
    if name != "tools last":  # which then stand elsewhere
        messages += [said("assistant", "Yes."), said("user", "Go on.")]
    asked = Conversation(model="m", messages=tuple(messages), tools=OFFERED)
    encoded = spied(builder, monkeypatch)
    draft = builder.begin(asked)
    assert draft is not None
    work = draft.work
    assert draft.finish().ids == PromptBuilder(LAYOUTS[name], own()).build(asked).ids
    tokenized = sum(map(len, encoded))
    assert tokenized < 2500  # of 23,000: from the last place before the edit where it can be cut
    assert tokenized - 500 < work < 2500


@pytest.mark.parametrize("name", ["own", "wide", "nested"])
@pytest.mark.parametrize("end", [21, 19])
def test_what_is_tokenized_again_before_another_edit_or_an_end_that_is_gone_counts_as_work(end: int, name: str) -> None:
    builder = PromptBuilder(LAYOUTS[name], PrefixTokenizer(own()))

    def said(place: int, text: str) -> Message:
        role = ("user", "assistant")[place % 2]
        return Message(role=role, blocks=(TextBlock(text=f"{text} {place}"),))  # type: ignore[arg-type]

    messages = [said(place, "word " * 200) for place in range(21)]
    builder.build(Conversation(model="m", messages=tuple(messages)))
    messages[2], messages[18] = said(2, "Edited"), said(18, "Edited, too")
    draft = builder.begin(Conversation(model="m", messages=tuple(messages[:end])))
    assert draft is not None
    assert draft.work > 15_000


def test_where_no_control_token_precedes_words_all_of_an_edited_text_counts_as_work() -> None:
    builder = PromptBuilder(ChatTemplate(WORDY), PrefixTokenizer(own()))
    roles: tuple[Role, ...] = ("user", "assistant")
    messages = [Message(role=roles[at % 2], blocks=(TextBlock(text=f"{at} {'word ' * 200}"),)) for at in range(21)]
    builder.build(Conversation(model="m", messages=tuple(messages)))
    messages[8] = Message(role="user", blocks=(TextBlock(text="Edited"),))
    draft = builder.begin(Conversation(model="m", messages=tuple(messages)))
    assert draft is not None
    assert draft.work > 20_000


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_precedes_words_an_edited_text_reads_as_a_whole(name: str, seed: int) -> None:
    chance = random.Random(seed)
    story, warm = ControlChat(chance), PromptBuilder(LAYOUTS[name], PrefixTokenizer(own()))
    for _ in range(8):
        asked, fresh = story.now(), PromptBuilder(LAYOUTS[name], own(), traits=warm.traits)
        assert outcome(warm, asked, None) == outcome(fresh, asked, None)
        story.exchange()
        place = chance.randrange(len(story.messages))
        if not any(isinstance(block, ToolCallBlock | ToolResultBlock) for block in story.messages[place].blocks):
            story.messages[place] = story.said(story.messages[place].role)


# ---------------------------------------------------------------------------------------------------- bounded memory


def test_caches_stay_within_their_bounds() -> None:
    tokenizer = own()
    seen = MessageCache(None, max_bytes=64_000)
    for number in range(500):
        seen.get(Message(role="user", blocks=(TextBlock(text=f"{number} " * 50),)))
    assert 0 < len(seen) < 200
    kept = AssembledPromptCache(max_tokens=1000)
    for number in range(50):
        ids = list(range(90))
        before = str(number - 1).encode() if number % 5 else None
        prompt = AssembledPrompt(TokenIds(ids), (), (), before)
        kept.put(str(number).encode(), prompt)
    assert 0 < len(kept) <= 11
    renderings = RenderingCache(max_bytes=50_000)
    for number in range(50):
        text = grown(None, tokenizer, f"<|im_start|>user\n{number}" * 20, "", (), (), end=0)
        renderings.put(str(number % 40).encode(), Rendering(b"", text, "", ()), str(number).encode())
    assert 0 < len(renderings) < 40
    assert renderings.beside(b"49") is not None
    assert renderings.beside(b"11") is None
