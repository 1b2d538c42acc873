"""The notes of prompt building: every code there is, and its words.

Promise: codes are stable; a note says what was done to the request, never what is in it.
"""

from __future__ import annotations

from turnwire.turns import Note

__all__ = ["NOTES", "noted"]

NOTES: dict[str, str] = {
    "content.image_omitted": "images cannot be put into a text prompt; a placeholder takes their place",
    "content.opaque_omitted": "a {} block has no place in the prompt",
    "prompt.control_text": "text that spells a control token of the model was put into the prompt as ordinary text",
    "replay.ambiguous": "the same words were said in several turns after this history; none of them is replayed",
    "replay.arguments_not_json": "the arguments of a call to {} are not JSON; they are shown as one text",
    "replay.calls_as_text": "the chat template writes no calls; they are shown as text",
    "replay.edited.arguments": "not the arguments that the model wrote; the message is shown as the client sent it",
    "replay.edited.calls": "not the calls that the model made; the message is shown as the client sent it",
    "replay.edited.name": "not the tool that the model called; the message is shown as the client sent it",
    "replay.edited.text": "not the text that the model wrote; the message is shown as the client sent it",
    "replay.edited.thought": "not the thought that the model had; the message is shown as the client sent it",
    "replay.gap": "a seal from the middle of the turn did not come back",
    "replay.missing": "no seal and no stored turn for an assistant message; it is rendered as the client sent it",
    "replay.not_spliced": "earlier turns were rendered by the chat template: {}",
    "replay.order_lost": "the chat template can only group thoughts, text and calls",
    "replay.partial": "the turn is exact up to its last thought; its end is written from the client's words",
    "replay.reasoning_unrendered": "the chat template has no place for earlier reasoning",
    "replay.seal_foreign": "a seal was made by another server or with another key",
    "replay.seal_other_model": "a seal was made for another model",
    "replay.seal_other_tenant": "a seal was made for another tenant",
    "replay.seal_tampered": "a seal came back changed",
    "replay.seal_too_large": "a seal is larger than any that is made here",
    "replay.seal_truncated": "a seal came back cut short",
    "replay.several_turns": "one assistant message holds several turns; it is rendered as the client sent it",
    "replay.store_only": "nothing carries the end of this turn; its exact replay depends on the turn store",
    "replay.text_unrendered": "the chat template shows no text beside calls",
    "stability.billing_dropped": "the billing line was kept out of the prompt",
    "stability.empty_dropped": "an empty {} message was left out of the prompt",
    "stability.results_reordered": "tool results were put in the order of their calls",
    "stability.system_folded": "a system message was folded into the user's side",
    "stability.system_hoisted": "the first system message was placed before the user's words",
    "stability.tools_expanded": "deferred tools are shown where they are loaded",
    "template.argument_refused": "template argument {} is not allowed",
    "thinking.cannot_disable": "the chat template has no switch that stops thinking",
    "thinking.effort_ignored": "the chat template knows no reasoning effort",
    "tools.unseen": "the chat template shows no tools, so the model does not know of those that were offered",
}


def noted(code: str, detail: object = "") -> Note:
    """The note `code`, with what it is about."""
    return Note(code, NOTES[code].format(detail))
