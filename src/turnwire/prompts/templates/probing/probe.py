"""Learning what a chat template does, by rendering small conversations and looking at what comes out.

Promise: `probe` never raises, whatever the template; what it cannot learn keeps the careful default and is named in
`TemplateTraits.notes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from turnwire.prompts.templates.probing.fixed_history import has_fixed_history
from turnwire.prompts.templates.probing.samples import (
    SampleTurns,
    TrialRenderer,
    after,
    between,
    call_turn,
    mark,
    said_by_user,
    tool,
)
from turnwire.prompts.templates.probing.thoughts import ThoughtProbe, with_thought
from turnwire.prompts.templates.probing.turn_ends import learn_turn_ends
from turnwire.prompts.templates.template import Renderer, TemplateMessage
from turnwire.prompts.templates.traits import ReasoningField, TemplateTraits, TurnEnds

__all__ = ["probe"]

_FOREIGN_IDS = ("Qcall1", "Rcall2")
_NINE_IDS = ("Q1abcdefg", "R2hijklmn")


def probe(template: Renderer) -> TemplateTraits:
    """The traits of a template."""
    return _Probe(template).traits()


class _Probe:
    """One examination; each step may use what the steps before it found."""

    def __init__(self, template: Renderer) -> None:
        self.renderer = TrialRenderer(template)
        self.turns = SampleTurns()
        self.notes: list[str] = []
        self.blank = False

    def traits(self) -> TemplateTraits:
        content = self._content_form()
        arguments = self._argument_form()
        tools = self._has_tools()
        mind = ThoughtProbe(self.renderer, self.turns)
        on, off, default_on = mind.switches()
        field = mind.field(on)
        kept = mind.kept(field, on)
        switch = mind.history_switch(field, kept, on)
        effort, values = mind.effort(on)
        strips = mind.strips()
        tail_on, tail_off = mind.tail(on), mind.tail(off) if off is not None else None
        opener, closer = mind.marks(field, on, tail_on, tail_off)
        turn_ends = learn_turn_ends(self.renderer, self.turns, tools=tools, args=on)
        if turn_ends.to_tool is None and turn_ends.to_user is None:
            self.notes.append("no assistant turn could be found again in what it renders")
        return TemplateTraits(
            reasoning_field=field,
            kept=kept,
            kept_with_switch=mind.kept(field, {**on, **switch}) if switch else kept,
            history_switch=switch,
            thinking_on=on,
            thinking_off=off,
            thinking_default=default_on if off is not None else field is not None or strips,
            strips_thoughts=strips,
            effort_argument=effort,
            effort_values=values,
            tools=tools,
            tools_empty="list" if self.renderer.empty_tools == "list" else "none",
            tools_follow_last_user=self._tools_follow(on),
            arguments=arguments,
            content=content,
            system=self._has_system(),
            empty_system=self._has_empty_system(),
            mid_system=self._mid_system(),
            parallel_calls=self._parallel(),
            user_after_user=self.renderer.show([said_by_user("a"), said_by_user("b")]) is not None,
            user_after_tool=self._user_after_tool(),
            tool_role=turn_ends.to_tool is not None,
            text_with_calls=self._text_with_calls(field, on),
            simple_schemas=self._simple_schemas(tools),
            call_ids=self._call_ids(),
            tail=mind.tail({}),
            tail_on=tail_on,
            tail_off=tail_off,
            thought_open=opener,
            thought_close=closer,
            turn_ends=turn_ends,
            fixed_history=self._fixed_history(turn_ends, field, (on, off or {})),
            blank=self.blank,
            notes=tuple(self.notes),
        )

    def _fixed_history(
        self, turn_ends: TurnEnds, field: ReasoningField | None, switches: Sequence[Mapping[str, Any]]
    ) -> bool:
        return turn_ends.local and has_fixed_history(self.renderer, self.turns, field, switches)

    def _content_form(self) -> Literal["text", "parts"]:
        word = mark("word")
        for form in ("text", "parts"):
            self.renderer.content = form
            for empty in ("none", "list"):
                self.renderer.empty_tools = empty
                text = self.renderer.show([said_by_user(word)])
                if text is not None and word in text and "'text'" not in text:
                    return "parts" if form == "parts" else "text"
        self.renderer.content, self.renderer.empty_tools = "text", "none"
        self.notes.append("it renders no plain user message")
        opening: TemplateMessage = {"role": "system", "content": "top"}
        samples = [[said_by_user(word)], [opening, said_by_user(word)]]
        self.blank = not any(word in (self.renderer.show(sample) or "") for sample in samples)
        return "text"

    def _argument_form(self) -> Literal["object", "text"]:
        """Settles the ids as well: some templates take only those of nine characters."""
        for ids in (_FOREIGN_IDS, _NINE_IDS):
            self.turns.ids = ids
            for form in get_args(Literal["object", "text"]):
                self.turns.arguments = form
                call = call_turn((ids[0], "alpha", self.turns.made(mark("arg"), flag=True)))
                sample = [said_by_user("go"), call, self.turns.result(0, "alpha", "done")]
                text = self.renderer.show(sample, tools=[tool("alpha")])
                if text is not None and mark("arg") in text and "{'" not in text[text.find(mark("arg")) - 40 :]:
                    return "text" if form == "text" else "object"
        self.turns.ids, self.turns.arguments = _FOREIGN_IDS, "object"
        return "object"

    def _call_ids(self) -> Literal["any", "nine", "kimi"]:
        if self.turns.ids == _NINE_IDS:
            return "nine"
        name = mark("name")
        sample = [said_by_user("go"), self.turns.call(0, name, mark("arg")), self.turns.result(0, name, "done")]
        rest = after(self.renderer.show(sample), "go")
        at = rest.find(mark("arg")) if rest is not None else -1
        if rest is None or at < 0:
            return "any"
        # A header that shows the id and not the name: the id has to carry the name. One that writes such an id by
        # itself says the same.
        head = rest[:at]
        if f"functions.{name}:" in head or (self.turns.ids[0] in head and name not in head):
            return "kimi"
        return "any"

    def _has_tools(self) -> bool:
        name = mark("offered")
        text = self.renderer.show([said_by_user("go")], tools=[tool(name)])
        return text is not None and name in text

    def _tools_follow(self, args: Mapping[str, Any]) -> bool:
        name, first = mark("offered"), mark("first")
        history: list[TemplateMessage] = [
            said_by_user(first),
            {"role": "assistant", "content": "yes"},
            said_by_user("more"),
        ]
        text = self.renderer.show(history, tools=[tool(name)], args=args)
        return text is not None and first in text and text.rfind(name) > text.find(first)

    def _has_system(self) -> bool:
        word = mark("system")
        text = self.renderer.show([{"role": "system", "content": word}, said_by_user("go")])
        return text is not None and word in text

    def _has_empty_system(self) -> bool:
        """Whether an empty system message reads otherwise than none at all."""
        asked = said_by_user("go")
        empty = self.renderer.show([{"role": "system", "content": ""}, asked])
        return empty is not None and empty != self.renderer.show([asked])

    def _mid_system(self) -> Literal["system", "developer"] | None:
        word, first, last = mark("midway"), mark("first"), mark("last")
        roles: tuple[Literal["system", "developer"], ...] = ("system", "developer")
        for role in roles:
            extra: TemplateMessage = {"role": role, "content": word}
            opening: TemplateMessage = {"role": "system", "content": "top"}
            one = self.renderer.show([opening, said_by_user(first), extra])
            answer: TemplateMessage = {"role": "assistant", "content": "yes"}
            two = self.renderer.show([opening, said_by_user(first), answer, extra, said_by_user(last)])
            three = self.renderer.show([opening, *self.turns.loop(), extra], tools=[tool("alpha")])
            said = self.renderer.show([opening, said_by_user(first), {"role": "assistant", "content": word}])
            if between(one, first, word) == between(said, first, word):
                continue  # taken for the assistant's words
            if (
                one is not None
                and first in one
                and one.count(word) == 1
                and one.find(word) > one.find(first)
                and two is not None
                and two.find(first) < two.find(word) < two.find(last)
                and (three is None or mark("result") not in three or three.find(word) > three.find(mark("result")))
            ):
                return role
        return None

    def _parallel(self) -> bool:
        one, two, turns = mark("one"), mark("two"), self.turns
        turn = call_turn((turns.ids[0], "alpha", turns.made(one)), (turns.ids[1], "beta", turns.made(two)))
        sample = [said_by_user("go"), turn, turns.result(0, "alpha", "x"), turns.result(1, "beta", "y")]
        text = self.renderer.show(sample, tools=[tool("alpha"), tool("beta")])
        return text is not None and one in text and two in text

    def _user_after_tool(self) -> bool:
        word = mark("word")
        text = self.renderer.show([*self.turns.loop(), said_by_user(word)], tools=[tool("alpha")])
        return text is not None and word in text

    def _text_with_calls(self, field: ReasoningField | None, args: Mapping[str, Any]) -> bool:
        """Whether a turn with calls shows its text too, in its own turn and also beside a thought."""
        word = mark("word")
        sample = self.turns.loop(word)
        if field is not None:
            sample[1] = with_thought(sample[1], field, mark("thought"))
        text = self.renderer.show(sample, tools=[tool("alpha")], args=args)
        if text is None:
            return field is None
        result = text.find(mark("result"))
        return word in text and (result < 0 or text.find(word) < result)

    def _simple_schemas(self, tools: bool) -> bool:
        """Whether a tool with nested parameters is refused where a plain one is taken."""
        rich = tool("alpha")
        rich["function"]["parameters"]["properties"] = {
            "any": {"description": "no type"},
            "list": {"type": "array", "description": "no items"},
            "map": {"type": "object", "description": "no properties"},
            "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        }
        return tools and self.renderer.show([said_by_user("go")], tools=[rich]) is None
