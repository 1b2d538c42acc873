"""Cohere: actions as a JSON list, in a fence (Command R+), or between special tokens like thoughts and answers."""

from __future__ import annotations

from turnwire.parsers.codecs.envelope import Envelope
from turnwire.parsers.dialect import Dialect, Reasoning

__all__ = ["DIALECTS"]

NAMES = ("tool_name", "name")
ARGUMENTS = ("parameters", "arguments")
ACTION = Envelope(
    wrappers=(("<|START_ACTION|>", "<|END_ACTION|>"),),
    name_keys=NAMES,
    argument_keys=ARGUMENTS,
    id_keys=("tool_call_id",),
)
ANSWERS = ("<|START_RESPONSE|>", "<|START_TEXT|>")
WRAPPERS = (*ANSWERS, "<|END_RESPONSE|>", "<|END_TEXT|>")
ENDS = ("<|END_OF_TURN_TOKEN|>", "<EOS_TOKEN>")

DIALECTS = (
    Dialect(
        name="command_r_plus",
        calls=(Envelope(wrappers=(("Action:", ""),), name_keys=NAMES, argument_keys=ARGUMENTS),),
        wrappers=("<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"),
        ends=ENDS,
        aliases=("command_r", "cohere_command_r_plus"),
    ),
    Dialect(
        name="cohere_command3",
        reasoning=Reasoning(("<|START_THINKING|>",), ("<|END_THINKING|>", *ANSWERS), mentions=False),
        calls=(ACTION,),
        wrappers=WRAPPERS,
        ends=ENDS,
        aliases=("cohere", "cohere_cmd", "command_r7b", "command_a", "command3", "cohere_action"),
        reasoning_aliases=("cohere_thinking",),
    ),
    Dialect(
        name="cohere_command4",
        reasoning=Reasoning(("<|START_THINKING|>",), ("<|END_THINKING|>", *ANSWERS), by_default=True, mentions=False),
        calls=(ACTION,),
        wrappers=WRAPPERS,
        ends=ENDS,
        turns=("<|CHATBOT_TOKEN|>",),
        aliases=("cohere2_moe", "command4"),
    ),
)
