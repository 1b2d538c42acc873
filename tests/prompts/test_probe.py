"""Probing: what is learnt of twenty families of templates, and that no template can make it fail."""

from __future__ import annotations

import os
import random
from datetime import datetime
from pathlib import Path

import pytest
from families import FAMILIES, source, template
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.templates.encodings import DeepSeekEncoding, HarmonyEncoding
from turnwire.prompts.templates.probing.probe import probe
from turnwire.prompts.templates.sandbox import Budget
from turnwire.prompts.templates.template import ChatTemplate, TemplateFailure, default_template
from turnwire.prompts.tokenizers.load import load_tokenizer


@pytest.mark.parametrize("name", FAMILIES)
def test_traits_of_a_family(name: str) -> None:
    expected = dict(FAMILIES[name])
    turn_ends = expected.pop("turn_ends", {})
    traits = probe(template(name))
    assert {key: getattr(traits, key) for key in expected} == expected
    assert {key: getattr(traits.turn_ends, key) for key in turn_ends} == turn_ends
    assert traits.notes == ()


def test_our_own_template_keeps_every_thought_and_takes_everything() -> None:
    traits = probe(default_template())
    assert traits.kept == ("tool_before", "text_before", "tool_after")
    assert traits.thinking_off == {"enable_thinking": False}
    assert traits.thinking_default
    assert (traits.tail_on, traits.thought_open) == ("<|im_start|>assistant\n<think>\n", "<think>\n")
    assert traits.mid_system == "system"
    assert traits.parallel_calls
    assert traits.turn_ends.local


def test_encodings_are_probed_like_templates() -> None:
    assert probe(DeepSeekEncoding("v4")).kept == ("tool_before", "text_before", "tool_after")
    assert probe(DeepSeekEncoding("v3.2")).kept == ("tool_after",)
    harmony = probe(HarmonyEncoding())
    assert harmony.history_switch == {"preserve_thinking": True}
    assert harmony.parallel_calls


def test_a_template_that_renders_nothing_is_named() -> None:
    traits = probe(ChatTemplate("{{ raise_exception('never') }}"))
    assert "it renders no plain user message" in traits.notes
    assert traits.turn_ends.to_user is None


def test_a_template_that_never_shows_the_users_words_is_refused() -> None:
    for text in ("{% for m in conversations %}{{ m.content }}{% endfor %}", "{{ raise_exception('never') }}", "Hello"):
        template = ChatTemplate(text)
        assert probe(template).blank
        with pytest.raises(TemplateFailure, match="does not show what the user says"):
            PromptBuilder(template, load_tokenizer())


def test_a_header_that_closes_its_own_thought_opens_none_elsewhere() -> None:
    """With thinking off this template writes an empty thought after its last mark; with thinking on, nothing."""
    traits = probe(
        ChatTemplate(
            "{% for m in messages %}{{ m.content }}<|extra_0|>{% endfor %}"
            "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n{% endif %}"
        )
    )
    assert (traits.tail_on, traits.tail_off) == ("<|extra_0|>", "<|extra_0|><think>\n\n</think>\n")
    assert (traits.thought_open, traits.thought_close) == ("", "</think>")


def _mutated(source: str, seed: int) -> str:
    """The template with a few pieces cut out, doubled or swapped."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(source))
        end = min(len(source), start + chance.randint(1, 60))
        piece = source[start:end]
        source = chance.choice(
            [
                source[:start] + source[end:],
                source[:end] + piece + source[end:],
                source[:start] + piece[::-1] + source[end:],
                source[:start] + chance.choice(["{{", "%}", "'", "|", ".", " not ", "[0]", "~"]) + source[start:],
            ]
        )
    return source


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, 2**32))
def test_probing_never_raises_on_mutated_templates(name: str, seed: int) -> None:
    try:
        mutated = ChatTemplate(
            _mutated(source(name), seed),
            clock=lambda: datetime(2026, 1, 2),
            budget=lambda: Budget(steps=20_000, output=200_000),
        )
    except TemplateFailure:
        return  # it does not compile, and says so
    probe(mutated)


def _shared_templates() -> list[Path]:
    given = os.environ.get("TURNWIRE_SHARED")
    places = [Path(given)] if given else [parent / "shared" for parent in Path(__file__).resolve().parents]
    folders = (place / "templates" for place in places)
    return next((sorted(folder.glob("*.jinja")) for folder in folders if folder.is_dir()), [])


@pytest.mark.slow
def test_real_templates_where_they_are_at_hand() -> None:
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    for path in _shared_templates():
        traits = probe(ChatTemplate(path.read_text("utf-8"), special, clock=lambda: datetime(2026, 1, 2)))
        assert traits.notes == (), path.stem
        assert traits.turn_ends.to_user is not None, path.stem
        if traits.tools:
            assert traits.turn_ends.to_tool is not None, path.stem
