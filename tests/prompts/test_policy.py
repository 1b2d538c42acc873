"""The replay policy: switches, history and the allow-list."""

from __future__ import annotations

from typing import Any

import pytest
from families import template

from turnwire.message_facts import message_facts
from turnwire.prompts.policy import ReplayPolicy
from turnwire.prompts.templates.probing.probe import probe
from turnwire.prompts.templates.traits import TemplateTraits
from turnwire.turns import Conversation, Message, ReasoningBlock, TextBlock, Thinking, ToolCallBlock, ToolResultBlock

POLICY = ReplayPolicy()


def user(text: str = "hi") -> Message:
    return Message(role="user", blocks=(TextBlock(text=text),))


def step(thought: str = "hm") -> list[Message]:
    turn = Message(
        role="assistant", blocks=(ReasoningBlock(text=thought), ToolCallBlock(id="c", name="f", arguments="{}"))
    )
    return [turn, Message(role="user", blocks=(ToolResultBlock(call_id="c"), TextBlock(text="a reminder")))]


def answer(thought: str = "hm") -> Message:
    return Message(role="assistant", blocks=(ReasoningBlock(text=thought), TextBlock(text="done")))


# 0 user, 1 turn, 2 results, 3 answer, 4 user, 5 turn, 6 results, 7 turn, 8 results
STORY = (user(), *step(), answer(), user(), *step(), *step())


def talk(thinking: Thinking | None = None, **args: Any) -> Conversation:
    return Conversation(model="m", messages=STORY, thinking=thinking or Thinking(), template_args=args)


@pytest.fixture(scope="module")
def traits() -> dict[str, TemplateTraits]:
    names = ("qwen2.5", "qwen3.5", "nemotron3", "deepseek-v4", "mistral", "gpt-oss", "minimax-m2", "solar")
    return {name: probe(template(name)) for name in names}


def test_the_loop_starts_behind_the_last_user_message_without_results() -> None:
    assert message_facts(STORY).loop == 5
    assert message_facts(STORY[:3]).loop == 1
    assert message_facts(()).loop == 0


@pytest.mark.parametrize(
    ("name", "thinking", "history", "exact"),
    [
        ("qwen2.5", Thinking(), "model", {1, 3, 5, 7}),  # knows no thoughts: nothing to drop
        ("qwen3.5", Thinking(), "model", {5, 7}),  # drops them, and has no switch
        ("qwen3.5", Thinking(history="keep"), "keep", {1, 3, 5, 7}),
        ("nemotron3", Thinking(), "keep", {1, 3, 5, 7}),  # has a switch, and thinking is on by default
        ("nemotron3", Thinking(mode="off"), "model", {5, 7}),
        ("nemotron3", Thinking(history="model"), "model", {5, 7}),
        ("deepseek-v4", Thinking(mode="adaptive"), "keep", {1, 3, 5, 7}),  # keeps all by itself
        ("mistral", Thinking(), "model", {5, 7}),  # moves its tools to the last user message
    ],
)
def test_which_turns_are_exact(
    traits: dict[str, TemplateTraits], name: str, thinking: Thinking, history: str, exact: set[int]
) -> None:
    plan = POLICY.plan(talk(thinking), traits[name])
    assert (plan.history, plan.exact) == (history, exact)


def test_the_request_outranks_the_operator(traits: dict[str, TemplateTraits]) -> None:
    operator = ReplayPolicy(history="drop")
    assert operator.plan(talk(), traits["nemotron3"]).history == "drop"
    assert operator.plan(talk(), traits["nemotron3"]).bare == {1, 3}
    assert operator.plan(talk(Thinking(history="keep")), traits["nemotron3"]).history == "keep"


def test_only_the_last_thoughts_are_kept_when_a_number_is_given(traits: dict[str, TemplateTraits]) -> None:
    plan = POLICY.plan(talk(Thinking(keep_turns=3)), traits["nemotron3"])
    assert (plan.history, plan.bare, plan.exact) == ("keep", {1}, {3, 5, 7})
    running = POLICY.plan(talk(Thinking(keep_turns=0)), traits["nemotron3"])
    assert (running.bare, running.exact) == ({1, 3}, {5, 7})  # the running loop is never cut


def test_the_switches_of_the_template_are_used(traits: dict[str, TemplateTraits]) -> None:
    on = POLICY.plan(talk(Thinking(mode="on")), traits["nemotron3"])
    assert on.args == {"enable_thinking": True, "truncate_history_thinking": False}
    off = POLICY.plan(talk(Thinking(mode="off")), traits["deepseek-v4"])
    assert (off.args, off.thinking) == ({"thinking": False}, False)
    stuck = POLICY.plan(talk(Thinking(mode="off")), traits["minimax-m2"])
    assert [note.code for note in stuck.notes] == ["thinking.cannot_disable"]


@pytest.mark.parametrize(("wish", "given"), [("high", "high"), ("xhigh", "high"), ("max", "high"), ("minimal", "low")])
def test_effort_takes_the_nearest_value_known(traits: dict[str, TemplateTraits], wish: str, given: str) -> None:
    plan = POLICY.plan(talk(Thinking(effort=wish)), traits["gpt-oss"])
    assert plan.args == {"reasoning_effort": given}
    ignored = POLICY.plan(talk(Thinking(effort=wish)), traits["qwen3.5"])
    assert [note.code for note in ignored.notes] == ["thinking.effort_ignored"]


def test_only_allowed_arguments_pass(traits: dict[str, TemplateTraits]) -> None:
    plan = POLICY.plan(talk(enable_thinking=False, bos_token="x", tools=[]), traits["qwen3.5"])
    assert plan.args == {"enable_thinking": False}
    assert not plan.thinking
    assert [note.code for note in plan.notes] == ["template.argument_refused"] * 2


def test_what_is_known_of_the_model_counts_for_more_than_probing(traits: dict[str, TemplateTraits]) -> None:
    def known(wish: Thinking) -> dict[str, Any]:
        return {"enable_thinking": wish.effort != "none", "low_effort": True} if wish.effort else {}

    policy = ReplayPolicy(known=known)
    assert policy.plan(talk(Thinking(history="model")), traits["nemotron3"]).args == {}
    low = policy.plan(talk(Thinking(effort="low", history="model")), traits["nemotron3"])
    assert (low.args, low.notes) == ({"enable_thinking": True, "low_effort": True}, ())
    none = policy.plan(talk(Thinking(effort="none", history="model")), traits["nemotron3"])
    assert not none.thinking
    asked = policy.plan(talk(Thinking(effort="low", history="model"), enable_thinking=False), traits["nemotron3"])
    assert asked.args["enable_thinking"] is False
    mute = ReplayPolicy(known=lambda wish: {}).plan(talk(Thinking(effort="low")), traits["nemotron3"])
    assert [note.code for note in mute.notes] == ["thinking.effort_ignored"]
