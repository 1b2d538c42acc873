"""Learning whether a template's history stays as it was written when a conversation goes on.

Promise: `has_fixed_history` is true only for a template that wrote, in every sample it could render, the same text
before a user's question whatever came after it, and the same text from the question before that on, whatever had come
earlier, even a word such as `/no_think` that some templates obey from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import Any

from turnwire.prompts.templates.probing.samples import SampleTurns, TrialRenderer, mark, said_by_user, tool
from turnwire.prompts.templates.probing.thoughts import with_thought
from turnwire.prompts.templates.template import TemplateMessage
from turnwire.prompts.templates.traits import ReasoningField

__all__ = ["has_fixed_history"]

_SYSTEM: TemplateMessage = {"role": "system", "content": "top"}
_OBEYED = (("/no_think", "/think"), ("/think", "/no_think"), ("/nothink", "/think"))


def has_fixed_history(
    renderer: TrialRenderer, turns: SampleTurns, field: ReasoningField | None, switches: Sequence[Mapping[str, Any]]
) -> bool:
    """Try plain exchanges and tool loops, with and without thoughts, under each of the template's `switches`."""
    plain: TemplateMessage = {"role": "assistant", "content": "Yes."}
    thought = plain if field is None else with_thought(plain, field, "Hm.")
    call, result = turns.call(0, "alpha", "one"), turns.result(0, "alpha", "two")
    more, found = turns.call(1, "beta", "three"), turns.result(1, "beta", "four")
    if field is not None:
        call = with_thought(call, field, "Ah.")
    chat = [[plain], [thought], [plain], [thought]]
    loops = [[plain], [call, result, thought], [plain], [more, found, call, result, plain]]
    offered = [tool("alpha"), tool("beta")]
    return all(
        _is_fixed(renderer, answers, tools, args, words)
        for args in switches
        for answers, tools, words in (
            (chat, None, ()),
            (chat, offered[:1], ()),
            (loops, offered, ()),
            *((chat, None, words) for words in _OBEYED),
        )
    )


def _is_fixed(
    renderer: TrialRenderer,
    answers: Sequence[Sequence[TemplateMessage]],
    tools: Sequence[Mapping[str, Any]] | None,
    args: Mapping[str, Any],
    words: Sequence[str],
) -> bool:
    """`words` are said with the first questions, one with each."""
    asked = [mark(f"asked{number}") for number in range(len(answers) + 1)]
    messages: list[TemplateMessage] = []
    places: list[int] = []
    for question, answer, word in zip_longest(asked, answers, words):
        places.append(len(messages))
        messages += [said_by_user(f"{question} {word}" if word else question), *(answer or ())]

    def show(start: int, end: int) -> str | None:
        part = messages[start:end]
        named = {call["function"]["name"] for message in part for call in message.get("tool_calls") or ()}
        shown = tools and ([each for each in tools if each["function"]["name"] in named] or tools[:1])
        return renderer.show([_SYSTEM, *part], tools=shown if start else tools, args=args)

    whole = show(0, len(messages))
    if whole is None:
        return False
    for (earlier, start), (question, place) in pairwise(zip(asked, places, strict=True)):
        base, window = show(0, place + 1), show(start, len(messages))
        if base is None or window is None or question not in base:
            return False
        if not whole.startswith(base[: base.find(question)]):
            return False
        if start and window[window.find(earlier) :] != whole[whole.find(earlier) :]:
            return False
    return True
