"""Learning what a chat template does, by rendering small conversations and looking at what comes out.

Promise: `probe` never raises, whatever the template; what it cannot learn keeps the careful default and is named in
`TemplateTraits.notes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from turnwire.prompts.scenes import Stage, after, between, call_turn, common_prefix, mark, markers, tool
from turnwire.prompts.seams import learn_seams
from turnwire.prompts.switches import EFFORTS, HISTORY_SWITCHES, THINKING_SWITCHES
from turnwire.prompts.template import Renderer, TemplateMessage
from turnwire.prompts.traits import KeptThought, ReasoningField, Seams, TemplateTraits

__all__ = ["probe"]

_FOREIGN_IDS = ("Qcall1", "Rcall2")
_NINE_IDS = ("Q1abcdefg", "R2hijklmn")
_THOUGHTS: dict[KeptThought, str] = {
    "tool_before": mark("thoughtA"),
    "text_before": mark("thoughtB"),
    "tool_after": mark("thoughtC"),
}
_LATEST = mark("thoughtD")


def probe(template: Renderer) -> TemplateTraits:
    """The traits of a template."""
    return _Probe(template).traits()


def _user(text: str) -> TemplateMessage:
    return {"role": "user", "content": text}


def _result(call_id: str, name: str, content: str) -> TemplateMessage:
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}


class _Probe:
    """One examination; each step may use what the steps before it found."""

    def __init__(self, template: Renderer) -> None:
        self.stage = Stage(template)
        self.notes: list[str] = []
        self.ids = _FOREIGN_IDS
        self.arguments: Literal["object", "text"] = "object"

    def traits(self) -> TemplateTraits:
        content = self._content_form()
        empty_tools = self._empty_tools()
        self.arguments = self._argument_form()
        ids = self._call_ids()
        tools = self._has_tools()
        on, off, default_on = self._thinking()
        field = self._reasoning_field(on)
        strips = self._strips()
        kept = self._kept(field, on)
        switch = self._history_switch(field, kept, on)
        effort, values = self._effort(on)
        seams = self._seams(tools, on)
        tails = self._tail(on), self._tail(off) if off is not None else None
        opener, closer = self._thought_marks(field, on, tails)
        if seams.to_tool is None and seams.to_user is None:
            self.notes.append("no assistant turn could be found again in what it renders")
        return TemplateTraits(
            reasoning_field=field,
            kept=kept,
            kept_with_switch=self._kept(field, {**on, **switch}) if switch else kept,
            history_switch=switch,
            thinking_on=on,
            thinking_off=off,
            thinking_default=default_on if off is not None else field is not None or strips,
            strips_thoughts=strips,
            effort_argument=effort,
            effort_values=values,
            interleaves=self._interleaves(field, on),
            tools=tools,
            tools_empty=empty_tools,
            tools_follow_last_user=self._tools_follow(on),
            arguments=self.arguments,
            content=content,
            system=self._has_system(),
            mid_system=self._mid_system(),
            parallel_calls=self._parallel(),
            user_after_user=self.stage.show([_user("a"), _user("b")]) is not None,
            user_after_tool=self._user_after_tool(),
            tool_role=seams.to_tool is not None,
            text_with_calls=self._text_with_calls(field, on),
            simple_schemas=self._simple_schemas(tools),
            call_ids=ids,
            shows_call_ids=self._shows_ids(),
            tail=self._tail({}),
            tail_on=tails[0],
            tail_off=tails[1],
            thought_open=opener,
            thought_close=closer,
            seams=seams,
            notes=tuple(self.notes),
        )

    # ------------------------------------------------------------------------------------------ message shapes

    def _content_form(self) -> Literal["text", "parts"]:
        word = mark("word")
        for form in ("text", "parts"):
            self.stage.content = form
            for empty in ("none", "list"):
                self.stage.empty_tools = empty
                text = self.stage.show([_user(word)])
                if text is not None and word in text and "'text'" not in text:
                    return "parts" if form == "parts" else "text"
        self.stage.content, self.stage.empty_tools = "text", "none"
        self.notes.append("it renders no plain user message")
        return "text"

    def _empty_tools(self) -> Literal["none", "list"]:
        return "list" if self.stage.empty_tools == "list" else "none"

    def _made(self, value: str, **more: Any) -> Any:
        if self.arguments == "object":
            return {"q": value, **more}
        fields = "".join(f', "{key}": {str(item).lower()}' for key, item in more.items())
        return f'{{"q": "{value}"{fields}}}'

    def _loop(self, *, content: str = "", **fields: Any) -> list[TemplateMessage]:
        call = call_turn((self.ids[0], "alpha", self._made(mark("arg"))), content=content, **fields)
        return [_user("go"), call, _result(self.ids[0], "alpha", mark("result"))]

    def _argument_form(self) -> Literal["object", "text"]:
        for ids in (_FOREIGN_IDS, _NINE_IDS):
            self.ids = ids
            for form in get_args(Literal["object", "text"]):
                self.arguments = form
                call = call_turn((ids[0], "alpha", self._made(mark("arg"), flag=True)))
                text = self.stage.show([_user("go"), call, _result(ids[0], "alpha", "done")], tools=[tool("alpha")])
                if text is not None and mark("arg") in text and "{'" not in text[text.find(mark("arg")) - 40 :]:
                    return "text" if form == "text" else "object"
        self.ids, self.arguments = _FOREIGN_IDS, "object"
        return "object"

    def _call_ids(self) -> Literal["any", "nine", "kimi"]:
        if self.ids == _NINE_IDS:
            return "nine"
        name = mark("name")
        call = call_turn((self.ids[0], name, self._made(mark("arg"))))
        text = self.stage.show([_user("go"), call, _result(self.ids[0], name, "done")])
        rest = after(text, "go")
        at = rest.find(mark("arg")) if rest is not None else -1
        if rest is None or at < 0:
            return "any"
        # A header that shows the id and not the name: the id has to carry the name. One that writes such an id by
        # itself says the same.
        head = rest[:at]
        if f"functions.{name}:" in head or (self.ids[0] in head and name not in head):
            return "kimi"
        return "any"

    def _shows_ids(self) -> bool:
        text = self.stage.show(self._loop(), tools=[tool("alpha")])
        return text is not None and self.ids[0] in text

    def _has_tools(self) -> bool:
        name = mark("offered")
        text = self.stage.show([_user("go")], tools=[tool(name)])
        return text is not None and name in text

    def _tools_follow(self, args: Mapping[str, Any]) -> bool:
        name, first = mark("offered"), mark("first")
        history: list[TemplateMessage] = [_user(first), {"role": "assistant", "content": "yes"}, _user("more")]
        text = self.stage.show(history, tools=[tool(name)], args=args)
        return text is not None and first in text and text.rfind(name) > text.find(first)

    def _has_system(self) -> bool:
        word = mark("system")
        text = self.stage.show([{"role": "system", "content": word}, _user("go")])
        return text is not None and word in text

    def _mid_system(self) -> Literal["system", "developer"] | None:
        word, first, last = mark("midway"), mark("first"), mark("last")
        roles: tuple[Literal["system", "developer"], ...] = ("system", "developer")
        for role in roles:
            extra: TemplateMessage = {"role": role, "content": word}
            opening: TemplateMessage = {"role": "system", "content": "top"}
            one = self.stage.show([opening, _user(first), extra])
            answer: TemplateMessage = {"role": "assistant", "content": "yes"}
            two = self.stage.show([opening, _user(first), answer, extra, _user(last)])
            three = self.stage.show([opening, *self._loop(), extra], tools=[tool("alpha")])
            said = self.stage.show([opening, _user(first), {"role": "assistant", "content": word}])
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
        one, two = mark("one"), mark("two")
        turn = call_turn((self.ids[0], "alpha", self._made(one)), (self.ids[1], "beta", self._made(two)))
        results = [_result(self.ids[0], "alpha", "x"), _result(self.ids[1], "beta", "y")]
        text = self.stage.show([_user("go"), turn, *results], tools=[tool("alpha"), tool("beta")])
        return text is not None and one in text and two in text

    def _user_after_tool(self) -> bool:
        word = mark("word")
        text = self.stage.show([*self._loop(), _user(word)], tools=[tool("alpha")])
        return text is not None and word in text

    def _text_with_calls(self, field: ReasoningField | None, args: Mapping[str, Any]) -> bool:
        """Whether a turn with calls shows its text too, also beside a thought."""
        word = mark("word")
        scene = self._loop(content=word)
        if field is not None:
            scene[1] = self._dressed(scene[1], field, mark("thought"))
        text = self.stage.show(scene, tools=[tool("alpha")], args=args)
        return text is None or word in text if field is None else text is not None and word in text

    def _simple_schemas(self, tools: bool) -> bool:
        """Whether a tool with nested parameters is refused where a plain one is taken."""
        rich = tool("alpha")
        rich["function"]["parameters"]["properties"] = {
            "any": {"description": "no type"},
            "list": {"type": "array", "description": "no items"},
            "map": {"type": "object", "description": "no properties"},
            "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        }
        return tools and self.stage.show([_user("go")], tools=[rich]) is None

    # ----------------------------------------------------------------------------------------------- thoughts

    def _thinking(self) -> tuple[dict[str, Any], dict[str, Any] | None, bool]:
        """(arguments that turn thinking on, arguments that turn it off, whether it is on by default)."""
        scene = [_user("go")]
        default = self.stage.show(scene)
        for on, off in THINKING_SWITCHES:
            with_on, with_off = self.stage.show(scene, args=on), self.stage.show(scene, args=off)
            if with_on is None or with_off is None or with_on == with_off:
                continue
            if "reasoning_effort" in on and self._tail(on) == self._tail(off):
                continue  # only a word about effort, no switch
            return dict(on), dict(off), default == with_on
        return {}, None, False

    def _effort(self, args: Mapping[str, Any]) -> tuple[str | None, tuple[str, ...]]:
        """The argument that sets how hard to think, and the values that make a difference."""
        scene = [{"role": "system", "content": "top"}, _user("go")]
        for name, values in EFFORTS:
            shown = {value: self.stage.show(scene, args={**args, name: value}) for value in values}
            accepted = {value: text for value, text in shown.items() if text is not None}
            if len(set(accepted.values())) > 1:
                free = self.stage.show(scene, args={**args, name: mark("effort")})
                printed = free is not None and mark("effort") in free
                # A template that prints any word does not say which words the model knows; these three all do.
                return name, ("low", "medium", "high") if printed else tuple(accepted)
        return None, ()

    def _dressed(self, turn: TemplateMessage, field: ReasoningField, thought: str) -> TemplateMessage:
        if field != "parts":
            return {**turn, field: thought}
        parts: list[dict[str, Any]] = [{"type": "thinking", "thinking": thought}]
        if turn["content"]:
            parts.append({"type": "text", "text": turn["content"]})
        return {**turn, "content": parts}

    def _story(self, field: ReasoningField) -> list[TemplateMessage]:
        """Two user turns: a tool step and an answer before the last user message, two tool steps after it."""

        def step(position: int, thought: str) -> list[TemplateMessage]:
            call_id = self.ids[position % 2][:-1] + str(position)
            turn = call_turn((call_id, "alpha", self._made("v")))
            return [self._dressed(turn, field, thought), _result(call_id, "alpha", "done")]

        answer: TemplateMessage = {"role": "assistant", "content": "answer"}
        return [
            {"role": "system", "content": "top"},
            _user("first"),
            *step(3, _THOUGHTS["tool_before"]),
            self._dressed(answer, field, _THOUGHTS["text_before"]),
            _user("second"),
            *step(4, _THOUGHTS["tool_after"]),
            *step(5, _LATEST),
        ]

    def _told(self, field: ReasoningField, args: Mapping[str, Any]) -> str:
        story = self._story(field)
        text = self.stage.show(story, tools=[tool("alpha")], args=args)
        if text is None:
            text = self.stage.show(story[1:], tools=[tool("alpha")], args=args)
        return text or ""

    def _reasoning_field(self, args: Mapping[str, Any]) -> ReasoningField | None:
        best: tuple[int, ReasoningField | None] = (0, None)
        for field in get_args(ReasoningField):
            for extra in ({}, *(dict(switch) for switch in HISTORY_SWITCHES)):
                text = self._told(field, {**args, **extra})
                found = sum(thought in text for thought in (*_THOUGHTS.values(), _LATEST))
                if field == "parts" and ("'thinking'" in text or '"thinking"' in text):
                    found = 0  # the list itself was printed
                if found > best[0]:
                    best = (found, field)
        return best[1]

    def _kept(self, field: ReasoningField | None, args: Mapping[str, Any]) -> tuple[KeptThought, ...]:
        if field is None:
            return ()
        text = self._told(field, args)
        return tuple(kind for kind, thought in _THOUGHTS.items() if thought in text)

    def _history_switch(
        self, field: ReasoningField | None, kept: tuple[KeptThought, ...], args: Mapping[str, Any]
    ) -> dict[str, Any]:
        if field is None:
            return {}
        best, most = {}, len(kept)
        for switch in HISTORY_SWITCHES:
            found = len(self._kept(field, {**args, **switch}))
            if found > most:
                best, most = dict(switch), found
        return best

    def _interleaves(self, field: ReasoningField | None, args: Mapping[str, Any]) -> bool:
        """Whether the thoughts of two tool steps of the running loop both stand before their own calls."""
        if field is None:
            return False
        text = self._told(field, args)
        return (
            _THOUGHTS["tool_after"] in text
            and _LATEST in text
            and text.find(_THOUGHTS["tool_after"]) < text.find(_LATEST)
        )

    def _strips(self) -> bool:
        """Whether a thought that stands in an earlier turn's text is cut away."""
        turn: TemplateMessage = {"role": "assistant", "content": f"{mark('thought')}</think>{mark('word')}"}
        text = self.stage.show([_user("first"), turn, _user("second")])
        return text is not None and mark("word") in text and mark("thought") not in text

    def _thought_marks(
        self, field: ReasoningField | None, args: Mapping[str, Any], tails: tuple[str, str | None]
    ) -> tuple[str, str]:
        """What the generation header pre-fills of a thought, and the mark that ends one."""
        on, off = tails
        closer, prefilled = "", False
        if field is not None:
            scene = [_user("go"), self._dressed({"role": "assistant", "content": mark("word")}, field, mark("thought"))]
            step = [_user("go"), self._dressed(self._loop()[1], field, mark("thought"))]
            step.append(_result(self.ids[0], "alpha", "done"))
            texts = (self.stage.show(scene, args=args), self.stage.show(step, tools=[tool("alpha")], args=args))
            for text, end in zip(texts, (mark("word"), mark("arg")), strict=True):
                rest = after(text, mark("thought"))
                if text is not None and rest is not None and end in rest:
                    closer = closer or _first_mark(rest[: rest.find(end)])
                    prefilled = prefilled or text[: text.rfind(mark("thought"))].rstrip().endswith(on.rstrip())
        elif off is not None and on != off:
            # No thought is shown in history, but the header of a turn without one closes it.
            only = [off[start:end] for start, end in markers(off) if off[start:end] not in on]
            closer, prefilled = (only[-1] if only else ""), any(off[a:b] in on[-(b - a) - 2 :] for a, b in markers(off))
        return (_opener(on, off) if prefilled else ""), closer

    # ---------------------------------------------------------------------------------------- where turns meet

    def _tail(self, args: Mapping[str, Any]) -> str:
        scene = [_user(mark("user"))]
        whole = self.stage.show(scene, args=args)
        bare = self.stage.show(scene, generation=False, args=args)
        if whole is None:
            return ""
        if bare is not None and whole != bare and whole.startswith(bare):
            return whole[len(bare) :]
        return after(whole, mark("user")) or ""

    def _seams(self, tools: bool, args: Mapping[str, Any]) -> Seams:
        return learn_seams(self.stage, arguments=self.arguments, ids=self.ids, tools=tools, args=args)


def _first_mark(text: str) -> str:
    """The first control token of `text`; a tag that is spelled by two tokens around a word counts as one."""
    found = markers(text)
    if not found:
        return text.strip()
    start, end = found[0]
    if len(found) > 1 and text[end : found[1][0]].isalpha():
        end = found[1][1]
    return text[start:end]


def _opener(on: str, off: str | None) -> str:
    """The part of a generation header that opens a thought."""
    found = markers(on)
    if not found:
        return ""
    shared = len(common_prefix(on, off)) if off is not None else len(on)
    for start, end in found:
        if start <= shared < end or (end == shared and not on[end : end + 1].isspace() and end < len(on)):
            return on[start:]
    return on[found[-1][0] :]
