"""From a conversation to prompt tokens.

Promise: `build` is a function of the conversation and of what can be recalled. The prompt of turn N+1 starts with the
prompt and the output of turn N, token for token, wherever the policy wants that turn exact and it can be recalled;
where not, a Note says so. What a prompt shares with an earlier one is neither rendered nor tokenized again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from weakref import WeakKeyDictionary

import msgspec

from turnwire.message_facts import message_facts
from turnwire.prompts.cache_bounds import CacheBounds
from turnwire.prompts.message_cache import KnownConversation, MessageCache, without_carriers
from turnwire.prompts.notes import noted
from turnwire.prompts.policy import PromptPlan, ReplayPolicy, Wished
from turnwire.prompts.prompt import Prompt, Recall, Tokenizer
from turnwire.prompts.recall.history import History
from turnwire.prompts.replay.assembled import AssembledPromptCache
from turnwire.prompts.replay.draft import Draft, Shown
from turnwire.prompts.replay.foresight import PlainAnswers
from turnwire.prompts.replay.growing_text import RenderingCache
from turnwire.prompts.replay.tokenized_text import TokenizedTextCache
from turnwire.prompts.stability import StabilityOptions, stabilise
from turnwire.prompts.templates.control_text import ControlText, Marks
from turnwire.prompts.templates.messages import calls_of
from turnwire.prompts.templates.probing.probe import probe
from turnwire.prompts.templates.template import Renderer, TemplateFailure
from turnwire.prompts.templates.traits import TemplateTraits
from turnwire.tool_sets import ToolSet, tool_set
from turnwire.turns import Conversation, Message, Note, ReasoningBlock, TextBlock, Thinking, Tool

__all__ = ["PromptBuilder"]

_THOUGHT_MARKS = ("<think>", "</think>")  # those that templates read out of an assistant's text


_encode = msgspec.msgpack.Encoder().encode
_MOST_TOOL_SETS = 256
_MOST_WISHES, _LONGEST_WISH = 256, 4096


class _ToolWords(msgspec.Struct, frozen=True, gc=False):
    """Of a set of tools: whether its words may become control, and whether they hold the first choice of a mark."""

    control: bool
    held: bool


class PromptBuilder:
    """Builds prompts for one model: its template and tokenizer, what probing showed of the template, the operator's
    replay policy and stability options, and the tokens that may end a turn (by default those the template names).
    `content_control` says what becomes of content that spells a control token: it stays `text`, the conversation is
    `refuse`d, or the token is let through (`allow`). `image` is the text that stands for an image where the engine gets
    it beside the prompt. `bounds` is how much of earlier prompts is kept. Several threads may use one. A template that
    does not show what the user says raises TemplateFailure."""

    def __init__(
        self,
        template: Renderer,
        tokenizer: Tokenizer,
        *,
        traits: TemplateTraits | None = None,
        policy: ReplayPolicy | None = None,
        stability: StabilityOptions | None = None,
        bounds: CacheBounds | None = None,
        end_tokens: Sequence[str] | None = None,
        content_control: Literal["text", "refuse", "allow"] = "text",
        image: str | None = None,
    ) -> None:
        self.template = template
        self.tokenizer = tokenizer
        self.traits = traits if traits is not None else probe(template)
        if image is not None:
            self.traits = msgspec.structs.replace(self.traits, image=image)
        if self.traits.blank:
            raise TemplateFailure("blank", "the chat template does not show what the user says")
        self.policy = policy or ReplayPolicy()
        self.stability = stability or StabilityOptions()
        self.bounds = bounds or CacheBounds()
        self.memory = TokenizedTextCache(self.bounds.texts)
        self.end_tokens = tuple(end_tokens if end_tokens is not None else template.end_tokens)
        self.content_control = content_control
        self.control = ControlText(tokenizer.control_tokens)
        watched = self.control if content_control != "allow" else None
        thoughts = _THOUGHT_MARKS if self.traits.strips_thoughts else ()
        self.messages = MessageCache(watched, thoughts=thoughts, max_bytes=self.bounds.messages)
        self.renderings = RenderingCache(self.bounds.renderings)
        self.assembled = AssembledPromptCache(self.bounds.prompts)
        self.plain_answers = PlainAnswers(tokenizer, self.end_tokens)
        self._tool_sets: dict[bytes, _ToolWords] = {}
        self._marked_tools: WeakKeyDictionary[ToolSet, tuple[Tool, ...]] = WeakKeyDictionary()
        self._wishes: dict[tuple[Thinking, bytes], Wished] = {}

    def build(self, conversation: Conversation, recall: Recall | None = None) -> Prompt:
        """The prompt for the conversation's next assistant turn; a conversation that ends with assistant text is
        continued from there. A template that refuses the conversation raises TemplateFailure."""
        draft = self.begin(conversation, recall)
        assert draft is not None
        return draft.finish()

    def begin(
        self, conversation: Conversation, recall: Recall | None = None, *, most: int | None = None
    ) -> Draft | None:
        """The prompt in the making, with what is known of it: `finish` gives what `build` would. None where more than
        `most` bytes of the conversation were never seen before; to begin would then take long."""
        stable, notes = stabilise(
            conversation,
            self.stability,
            mid_system=self.traits.mid_system is not None,
            system=self.traits.system,
            empty_system=self.traits.empty_system,
        )
        if most is not None and self.messages.unseen(stable.messages, most) > most:
            return None
        stable = self._without_silence(stable, recall, notes)
        begun = _begun(stable.messages)
        if begun is not None:
            stable = msgspec.structs.replace(stable, messages=stable.messages[:-1])
        plan = self.policy.planned(stable, self.traits, self._wished(stable))
        notes.extend(plan.notes)
        if stable.tools and not self.traits.tools:
            notes.append(noted("tools.unseen"))
        known = self.messages.all(_without_thoughts(stable.messages, plan.bare))
        offered = tool_set(stable.tools)
        draft = Draft(self, known, offered, self._shown(known, offered, plan, begun), plan, notes)
        draft.look_up(recall)
        return draft

    def _without_silence(self, stable: Conversation, recall: Recall | None, notes: list[Note]) -> Conversation:
        """Assistant messages that hold nothing stay only where a turn is recalled for them: one that only thought, and
        whose client does not send thoughts back."""
        messages = stable.messages
        if not message_facts(messages).silent:
            return stable
        known = self.messages.all(messages)
        history = History(messages, known.prefixes.digests, known.said, tool_set(stable.tools))
        kept: list[Message] = []
        for position, message in enumerate(messages):
            silent = message.role == "assistant" and not message.blocks
            later = position < len(messages) - 1
            if silent and not (recall and later and recall.recall(message, history.before(position))[0]):
                notes.append(noted("stability.empty_dropped", message.role))
            else:
                kept.append(message)
        return msgspec.structs.replace(stable, messages=tuple(kept))

    def _wished(self, conversation: Conversation) -> Wished:
        """What the request's wishes mean; a conversation has the same ones in every turn."""
        given = _encode(conversation.template_args)
        if len(given) > _LONGEST_WISH:
            return self.policy.wished(conversation, self.traits)
        key = (conversation.thinking, given)
        found = self._wishes.get(key)
        if found is None:
            if len(self._wishes) >= _MOST_WISHES:
                self._wishes.clear()
            found = self._wishes[key] = self.policy.wished(conversation, self.traits)
        return found

    def _looked_through(self, offered: ToolSet) -> _ToolWords:
        """What is known of the tools' words; the same tools come with every request."""
        key = offered.digest()
        found = self._tool_sets.get(key)
        if found is None:
            if len(self._tool_sets) >= _MOST_TOOL_SETS:
                self._tool_sets.clear()
            control = self.control
            found = _ToolWords(any(map(control.in_tool, offered.tools)), control.holds_mark(offered.packed))
            self._tool_sets[key] = found
        return found

    def _tools_marked(self, offered: ToolSet, marks: Marks) -> tuple[Tool, ...]:
        """The tools with the first choice of a mark."""
        found = self._marked_tools.get(offered)
        if found is None:
            found = self._marked_tools[offered] = tuple(map(marks.tool, offered.tools))
        return found

    def _shown(self, known: KnownConversation, offered: ToolSet, plan: PromptPlan, begun: str | None) -> Shown:
        """What the template is given: the conversation, with marks wherever its content could become control."""
        control = self.control
        found = self.content_control != "allow" and (
            known.control
            or self._looked_through(offered).control
            or control.in_value(plan.args)
            or (begun is not None and control.in_text(begun))
        )
        if not found:
            return Shown(known.messages, known.shown, known.calls, offered.tools, plan.args, begun, None)
        if self.content_control == "refuse":
            raise TemplateFailure(
                "control", "content spells a control token of the model, and the operator allows none"
            )
        held = known.held or self._looked_through(offered).held or control.holds_mark(_encode((plan.args, begun)))
        if held:
            marks = control.marks(known.messages, offered.tools, [plan.args, begun])
            if marks is None:
                raise TemplateFailure("control", "content spells control tokens and uses every Unicode noncharacter")
            marked = tuple(
                self.messages.marked(message, marks) if each.control else message
                for message, each in zip(known.messages, known.each, strict=True)
            )
            marked_tools = tuple(map(marks.tool, offered.tools))
        else:
            marks = control.first_marks()
            marked = tuple([each.marked for each in known.each])
            marked_tools = self._tools_marked(offered, marks)
        if begun is not None:
            begun = _continued(begun, marks)
        written = tuple(
            without_carriers(message) if each.control else each.shown
            for message, each in zip(marked, known.each, strict=True)
        )
        return Shown(marked, written, calls_of(written), marked_tools, marks.value(plan.args), begun, marks)


def _continued(begun: str, marks: Marks) -> str:
    """Text to be continued, marked. It may begin with a thought of its own, open or closed."""
    opener, closer = _THOUGHT_MARKS
    start = len(begun) - len(begun.lstrip())
    if not begun.startswith(opener, start):
        return marks.text(begun)
    start += len(opener)
    thought, close, answer = begun[start:].partition(closer)
    return begun[:start] + marks.text(thought) + close + marks.text(answer)


def _begun(messages: Sequence[Message]) -> str | None:
    """The text of a last assistant message that is to be continued."""
    if not messages or messages[-1].role != "assistant":
        return None
    if all(isinstance(block, TextBlock) for block in messages[-1].blocks):
        return messages[-1].text
    return None


def _without_thoughts(messages: tuple[Message, ...], bare: frozenset[int]) -> tuple[Message, ...]:
    if not bare:
        return messages
    return tuple(
        Message(role=message.role, blocks=tuple(b for b in message.blocks if not isinstance(b, ReasoningBlock)))
        if position in bare
        else message
        for position, message in enumerate(messages)
    )
