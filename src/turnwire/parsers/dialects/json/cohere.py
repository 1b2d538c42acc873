"""Cohere: actions as a JSON list, in a fence (Command R+), or between special tokens like thoughts and answers.

Promise: markers of turns and answers never show in the text.
"""

from __future__ import annotations

from turnwire.parsers.codecs.envelope import Envelope, Keys
from turnwire.parsers.dialect import Dialect, Reasoning, Signature
from turnwire.parsers.writing import CallForm

__all__ = ["DIALECTS"]

NAMES = ("tool_name", "name")
ARGUMENTS = ("parameters", "arguments")
ACTION = Envelope(
    wrappers=(("<|START_ACTION|>", "<|END_ACTION|>"),),
    keys=Keys(NAMES, ARGUMENTS, ("tool_call_id",)),
)
ANSWERS = ("<|START_RESPONSE|>", "<|START_TEXT|>")
WRAPPERS = (*ANSWERS, "<|END_RESPONSE|>", "<|END_TEXT|>")
TURNS = ("<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>")
FORM = CallForm(
    section=("<|START_ACTION|>[\n", "\n]<|END_ACTION|>"),
    head='    {{"tool_call_id": "{index}", "tool_name": "{name}", "parameters": ',
    tail="}}",
    between=",\n",
)
ENDS = ("<|END_OF_TURN_TOKEN|>", "<EOS_TOKEN>")

DIALECTS = (
    Dialect(
        name="command_r_plus",
        calls=(Envelope(wrappers=(("Action:", ""),), keys=Keys(NAMES, ARGUMENTS)),),
        wrappers=TURNS,
        ends=ENDS,
        turns=(*TURNS, ENDS[0]),
        aliases=("command_r", "cohere_command_r_plus"),
        writes=CallForm(
            section=("Action:\n```json\n[\n", "\n]```"),
            head='    {{"tool_name": "{name}", "parameters": ',
            tail="}}",
            between=",\n",
        ),
        known_by=(Signature(("Action:", "directly_answer")), Signature(("Action:", "directly-answer"))),
        ids=("command-r", "c4ai-command-r"),
    ),
    Dialect(
        name="cohere_command3",
        reasoning=Reasoning(("<|START_THINKING|>",), ("<|END_THINKING|>", *ANSWERS), mentions=False),
        calls=(ACTION,),
        wrappers=WRAPPERS,
        ends=ENDS,
        aliases=("cohere", "cohere_cmd", "command_r7b", "command_a", "command3", "cohere_action"),
        reasoning_aliases=("cohere_thinking",),
        writes=FORM,
        turns=(*TURNS, ENDS[0]),
        known_by=(Signature(("<|START_ACTION|>",)),),
        ids=("command-a", "command-r7b", "c4ai-command-a", "c4ai-command-r7b"),
    ),
    Dialect(
        name="cohere_command4",
        reasoning=Reasoning(("<|START_THINKING|>",), ("<|END_THINKING|>", *ANSWERS), by_default=True, mentions=False),
        calls=(ACTION,),
        wrappers=WRAPPERS,
        ends=ENDS,
        turns=(*TURNS, ENDS[0]),
        aliases=("cohere2_moe", "command4"),
        writes=FORM,
        known_by=(Signature(("<|START_ACTION|>", "<|START_TEXT|>")), Signature(("<|START_TEXT|>",))),
        ids=("command-4", "cohere2-moe", "cohere2moe"),
    ),
)
