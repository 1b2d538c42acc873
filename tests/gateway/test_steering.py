"""One call at a time and bounded thoughts: what is kept is a prefix of what the model said, at any cut."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from turnwire.engines.interface import Completion, Step, TokenBatch
from turnwire.turns import Sampling, Thinking, ToolChoice

from .test_turn import TOKENIZER, Engine, Pages, turn

CALL = "<tool_call>\n<function=ls>\n</function>\n</tool_call>"
TWO_CALLS = f"Look.\n</think>\n\n{CALL}\n{CALL}"
ONE_AT_A_TIME = ToolChoice(parallel=False)


def batches(text: str, size: int) -> list[Step]:
    ids, spell = TOKENIZER.encode(text), TOKENIZER.detokenizer()
    return [TokenBatch(spell.feed(ids[at : at + size]), tuple(ids[at : at + size])) for at in range(0, len(ids), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_the_turn_ends_after_its_first_call(size: int) -> None:
    pages = Pages()
    engine = Engine([*batches(TWO_CALLS, size), Completion("stop", 9, 99)])
    running = turn(engine, pages, tool_choice=ONE_AT_A_TIME)
    outcome = await running.run()
    answer = msgspec.json.decode(pages.written)["choices"][0]
    assert [call["function"]["name"] for call in answer["message"]["tool_calls"]] == ["ls"]
    assert answer["finish_reason"] == "tool_calls"
    assert TWO_CALLS.startswith(outcome.text)
    assert outcome.text.rstrip("\n").endswith("</tool_call>")
    assert TOKENIZER.decode(outcome.output_ids) == outcome.text
    assert outcome.usage.output == len(outcome.output_ids)
    assert "calls.first_only" in [note.code for note in outcome.notes]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("said", "stops", "kept", "stop"),
    [
        ("I think\n\nEND.\n</think>\n\nOne.\n\nTwo.", ("\n\n",), "One.", "\n\n"),
        ("END\n</think>\n\nThe ENDING", ("END",), "The ", "END"),
        ("a\n</think>\n\nEN and EN", ("END",), "EN and EN", None),
        ("a\n</think>\n\nx STO STOP y STOP", ("STOP", "y"), "x STO ", "STOP"),
    ],
)
async def test_stop_strings_end_the_answer_and_not_the_thought(
    size: int, said: str, stops: tuple[str, ...], kept: str, stop: str | None
) -> None:
    pages = Pages()
    engine = Engine([*batches(said, size), Completion("stop", 9, 99)])
    outcome = await turn(engine, pages, sampling=Sampling(stop=stops)).run()
    answer = msgspec.json.decode(pages.written)["choices"][0]
    assert answer["message"]["content"] == kept
    assert answer["finish_reason"] == "stop"
    assert outcome.finish is not None
    assert outcome.finish.stop_sequence == stop
    assert said.startswith(outcome.text)
    if stop is not None:
        assert outcome.text.endswith(kept)
        assert outcome.text.startswith(TOKENIZER.decode(outcome.output_ids))


async def test_a_turn_with_one_call_is_left_as_it_is() -> None:
    text = f"Look.\n</think>\n\n{CALL}"
    engine = Engine([*batches(text, 3), Completion("stop", 9, 99)])
    outcome = await turn(engine, tool_choice=ONE_AT_A_TIME).run()
    assert outcome.text == text
    assert outcome.usage.output == 99
    assert not [note for note in outcome.notes if note.code == "calls.first_only"]


class Resumable(Engine):
    """Thinks on and on; given a closed thought, it answers."""

    def steps_for(self, said: str) -> list[Step]:
        text = "So it is four." if "</think>" in said else "Hm, let me think about it once more. " * 40
        return [*batches(text, 2), Completion("stop", 50, len(TOKENIZER.encode(text)))]

    async def _steps(self, request: Any) -> Any:
        self.seen.append(request)
        ids = list(request.prompt_ids)
        self.steps = self.steps_for(TOKENIZER.decode(ids[len(ids) - request.resumed :]))
        try:
            for step in self.steps:
                assert not isinstance(step, Exception)
                yield step
        finally:
            self.left += 1


@pytest.mark.parametrize("budget", [1, 8, 33])
async def test_a_thought_is_closed_at_its_budget_and_the_model_goes_on(budget: int) -> None:
    pages = Pages()
    engine = Resumable([])
    running = turn(engine, pages, tools=(), thinking=Thinking(mode="on", budget=budget))
    outcome = await running.run()
    message = msgspec.json.decode(pages.written)["choices"][0]["message"]
    assert message["content"] == "So it is four."
    thought = TOKENIZER.encode(message["reasoning_content"])
    assert budget <= len(thought) <= budget + 2
    assert TOKENIZER.decode(outcome.output_ids) == outcome.text
    assert "thinking.budget_reached" in [note.code for note in outcome.notes]
    first, second = engine.seen
    closed = list(second.prompt_ids)[len(first.prompt_ids) :]
    assert list(outcome.output_ids[: len(closed)]) == closed
    assert second.resumed == len(closed)
    assert outcome.usage.output == len(closed) + len(TOKENIZER.encode("So it is four."))


async def test_a_thought_within_its_budget_is_left_alone() -> None:
    engine = Engine([TokenBatch("Hm.\n</think>\n\nFour.", (1, 2, 3)), Completion("stop", 1, 3)])
    outcome = await turn(engine, tools=(), thinking=Thinking(mode="on", budget=100)).run()
    assert len(engine.seen) == 1
    assert not outcome.notes


async def test_a_budget_counts_against_the_largest_answer() -> None:
    engine = Resumable([])
    running = turn(engine, tools=(), thinking=Thinking(mode="on", budget=8))
    conversation = running.record.inbound.conversation
    sampling = msgspec.structs.replace(conversation.sampling, max_tokens=30)
    running.record.inbound.conversation = msgspec.structs.replace(conversation, sampling=sampling)
    await running.run()
    first, second = engine.seen
    assert first.sampling.max_tokens == 30
    assert second.sampling.max_tokens == 30 - second.resumed


async def test_what_the_second_half_finds_in_the_cache_is_no_more_than_the_prompt() -> None:
    """The thought that was closed is in the cache, too, and is no part of the client's prompt."""

    class Cached(Resumable):
        async def _steps(self, request: Any) -> Any:
            async for step in super()._steps(request):
                if isinstance(step, Completion):
                    size = len(request.prompt_ids)
                    step = msgspec.structs.replace(step, prompt_tokens=size, cached_tokens=size - 1)
                yield step

    running = turn(Cached([]), tools=(), thinking=Thinking(mode="on", budget=8))
    outcome = await running.run()
    assert outcome.usage.prompt == len(running.record.prompt.ids)
    assert outcome.usage.cached == outcome.usage.prompt
