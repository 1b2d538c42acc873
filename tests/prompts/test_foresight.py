"""What a turn's end needs: nothing where the client's words give the same tokens back, and a carrier otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from families import FAMILIES, template

from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.prompt import Prompt
from turnwire.prompts.replay.foresight import Foresight, survives_clients
from turnwire.prompts.replay.rewriting import rewritten_on
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import Conversation, Message, TextBlock, Thinking, Tool, ToolCallBlock

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
