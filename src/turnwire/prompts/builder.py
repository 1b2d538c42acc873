"""From a conversation to prompt tokens.

Promise: `build` is a function of the conversation and what can be recalled; the prompt of turn N+1 starts with the
prompt and the output of turn N wherever those can be recalled.
"""

from __future__ import annotations

from typing import Any

from turnwire.prompts.dressing import CallNames, dress, dress_tools
from turnwire.prompts.prompt import Prompt, Recall, Section, Tokenizer
from turnwire.prompts.template import Renderer
from turnwire.prompts.traits import TemplateTraits
from turnwire.turns import Conversation, Note

__all__ = ["PromptBuilder"]


class PromptBuilder:
    """Builds prompts for one model: its template, its tokenizer, what is known of the template."""

    def __init__(self, template: Renderer, tokenizer: Tokenizer, *, traits: TemplateTraits | None = None) -> None:
        self.template = template
        self.tokenizer = tokenizer
        self.traits = traits or TemplateTraits()

    def build(self, conversation: Conversation, recall: Recall | None = None) -> Prompt:
        """The prompt for the conversation's next assistant turn."""
        notes: list[Note] = []
        messages = dress(conversation.messages, self.traits, CallNames(self.traits.call_ids), notes)
        tools = dress_tools(conversation.tools) or None
        args: dict[str, Any] = dict(conversation.template_args)
        text = self.template.render(messages, tools=tools, generation=True, args=args)
        bare = self.template.render(messages, tools=tools, generation=False, args=args)
        tail = text[len(bare) :] if text.startswith(bare) else ""
        ids = self.tokenizer.encode(text)
        return Prompt(ids=ids, tail=tail, sections=(Section("message", 0, 0, len(ids)),), notes=tuple(notes))
