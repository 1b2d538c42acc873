"""From what a client demands of the output to what an engine can be held to, in the model's own way of writing.

Promise: a forced or strict call is written as the dialect writes calls, so it reads natively to the model and to its
parser. Where the engine cannot be held to it, the plan says with what text to start the answer, and how to check it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from operator import attrgetter
from typing import Any

import msgspec

from turnwire.conventions import RAW_INPUT, raw_input_schema
from turnwire.engines.guided.grammar import Grammar, literal
from turnwire.engines.guided.schema_check import Work, faults
from turnwire.engines.interface import Capabilities, Constraint
from turnwire.parsers.dialect import Dialect, Start
from turnwire.parsers.writing import ArgumentForm, CallForm
from turnwire.turns import Conversation, Note, OutputFormat, Tool, ToolCallBlock
from turnwire.unreadable import UNREADABLE

__all__ = ["FREE", "Check", "ConstraintPlan", "plan_constraint"]

_MOST_CALLS = 8
_BLANK = "[\\n]{0,3}"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What the finished turn must hold. `tools` maps each callable tool to the schema of its arguments."""

    tools: dict[str, dict[str, Any]] = {}
    must_call: bool = False
    only: str | None = None
    format: OutputFormat | None = None

    def faults(self, calls: Sequence[tuple[str, str]], text: str) -> tuple[str, ...]:
        """What is wrong with a turn that made these calls (name, argument text) and wrote `text`."""
        found, work = list[str](), Work()
        if self.must_call and not calls:
            found.append(f"no call was made, though {self.only or 'one'} was required")
        for name, arguments in calls:
            schema = self.tools.get(name)
            if schema is None:
                found.append(f"{name} is not a tool on offer")
            elif self.only is not None and name != self.only:
                found.append(f"{name} was called instead of {self.only}")
            else:
                found += [f"{name}: {fault}" for fault in _json_faults(arguments, schema, work)]
        if self.format is not None and not calls:
            found += _json_faults(text.strip(), self.format.schema or {"type": "object"}, work)
        return tuple(found)


def _json_faults(text: str, schema: dict[str, Any], work: Work) -> tuple[str, ...]:
    try:
        return faults(msgspec.json.decode(text), schema, work)
    except UNREADABLE as error:
        return (f"not valid JSON: {error}",)


class ConstraintPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How to ask for a turn. `prefill` is text to append to the prompt and to count as the model's own first words;
    `suffix` is to be counted as its last ones once the engine has finished by itself. `check` is None where the client
    demanded nothing."""

    constraint: Constraint | None = None
    prefill: str = ""
    suffix: str = ""
    check: Check | None = None
    notes: tuple[Note, ...] = ()


FREE = ConstraintPlan()
"""Nothing is demanded."""

_strict = attrgetter("strict")


def plan_constraint(
    conversation: Conversation, dialect: Dialect, capabilities: Capabilities, start: Start | None = None
) -> ConstraintPlan:
    """The plan for a conversation. `start` is where the prompt leaves off (see `parsers.start_state`); an engine that
    yields events parses by itself and gets only a check."""
    free = conversation.tool_choice.mode == "auto" and conversation.format is None
    if free and not any(map(_strict, conversation.tools)):
        return FREE
    tools = conversation.tools_in_view
    demand = _Demand(conversation, tools)
    if not demand.any:
        return FREE
    check = Check(
        tools={tool.name: _schema(tool) for tool in tools},
        must_call=demand.must_call,
        only=demand.only,
        format=conversation.format,
    )
    if capabilities.yields == "events":
        return ConstraintPlan(check=check)
    writer = _Writer(demand, dialect, start or dialect.start, conversation)
    if (plan := writer.raw_plan(capabilities.guided)) is not None:
        return msgspec.structs.replace(plan, check=check)
    if "gbnf" in capabilities.guided and (grammar := writer.grammar()) is not None:
        return ConstraintPlan(constraint=Constraint(gbnf=grammar), check=check)
    if "json_schema" in capabilities.guided and (plan := writer.schema_plan()) is not None:
        return msgspec.structs.replace(plan, check=check)
    note = Note(
        "constraint.unguided", "The engine cannot be held to the format that was asked for; it is only checked."
    )
    return ConstraintPlan(prefill=writer.opening(), check=check, notes=(note,))


def _schema(tool: Tool) -> dict[str, Any]:
    return raw_input_schema() if tool.kind == "custom" else tool.schema or {"type": "object"}


class _Demand:
    """What the client asked for, with the ways to ask for the same thing folded together."""

    def __init__(self, conversation: Conversation, tools: tuple[Tool, ...]) -> None:
        choice = conversation.tool_choice
        self.only = choice.name if choice.mode == "named" else None
        self.must_call = choice.mode in ("required", "named") and bool(tools)
        self.tools = () if choice.mode == "none" else tools
        if self.only is not None:
            self.tools = tuple(tool for tool in tools if tool.name == self.only)
        self.several = choice.parallel and self.only is None
        self.strict = any(tool.strict for tool in self.tools)
        self.format = None if self.must_call else conversation.format

    @property
    def any(self) -> bool:
        return self.must_call or self.strict or self.format is not None

    @property
    def format_schema(self) -> dict[str, Any]:
        given = self.format.schema if self.format is not None else None
        return given or {"type": "object"}


class _Writer:
    """Writes one demand in one dialect."""

    def __init__(self, demand: _Demand, dialect: Dialect, start: Start, conversation: Conversation) -> None:
        self._demand = demand
        self._dialect = dialect
        self._start = start
        self._form = dialect.writes
        self._thinks = conversation.thinking.mode != "off"
        self._calls_before = sum(
            isinstance(block, ToolCallBlock) for message in conversation.messages for block in message.blocks
        )

    # ---------------------------------------------------------------------------------------------- grammar

    def grammar(self) -> str | None:
        """A grammar for the whole turn; None where the dialect's calls have no form, or its turn has headers that the
        form does not know."""
        form, demand, grammar = self._form, self._demand, Grammar()
        headed = self._start.state == "header"
        if (form is None and demand.tools) or (headed and (form is None or form.thought is None)):
            return None
        calls = self._calls(grammar, form) if form is not None and demand.tools else None
        answer = grammar.json(demand.format_schema, "answer") if demand.format is not None else None
        if answer is not None and headed and form is not None:
            answer = f"{literal(form.answer)} {answer}"
        if demand.must_call:
            body = calls
        elif answer is not None:
            body = f"({answer} | {calls})" if calls else answer
        elif form is not None and form.opener.strip():
            # Prose is free as long as it does not begin a call; from there on the form holds.
            body = f"{grammar.without(form.opener.rstrip())} ({calls})?"
        else:
            return None
        return grammar.text(f"{self._thought(grammar)} {body}")

    def _thought(self, grammar: Grammar) -> str:
        form, reasoning = self._form, self._dialect.reasoning
        if self._start.state == "header" and form is not None and form.thought is not None:
            opened, closed, then = form.thought
            return f"({literal(opened)} {grammar.until(closed)} {literal(then)})?"
        if reasoning is None:
            return '""'
        if self._start.state == "reasoning":
            return f"{grammar.until(reasoning.close[0])} {_BLANK}"
        if not self._thinks:
            return _BLANK
        return f"({literal(reasoning.open[0])} {grammar.until(reasoning.close[0])} {_BLANK})?"

    def _calls(self, grammar: Grammar, form: CallForm) -> str:
        calls = [grammar.rule(f"call-{tool.name}", self._call(grammar, form, tool)) for tool in self._demand.tools]
        call = calls[0] if len(calls) == 1 else grammar.rule("call", " | ".join(calls))
        between = f"{literal(form.between)} " if form.between else ""
        several = self._demand.several and not form.single
        more = f" ({between}{call}){{0,{_MOST_CALLS - 1}}}" if several else ""
        around = [literal(part) if part else "" for part in form.section]
        return grammar.rule("calls", f"{around[0]} {call}{more} {around[1]}".strip())

    def _call(self, grammar: Grammar, form: CallForm, tool: Tool) -> str:
        mark = "\0"
        head = form.open_call(tool.name, mark).split(mark)
        opened = " [0-9]{1,4} ".join(literal(part) for part in head)
        held = self._demand.must_call or tool.strict
        schema = _schema(tool) if held or form.arguments is not None else {"type": "object"}
        if form.arguments is None:
            arguments = grammar.json(schema, tool.name)
        else:
            arguments = _tagged(grammar, form.arguments, schema, tool.name)
        return f"{opened} {arguments} {literal(form.close_call()) if form.tail else ''}".rstrip()

    # ------------------------------------------------------------------------------ engines with less to offer

    def raw_plan(self, guided: Set[str]) -> ConstraintPlan | None:
        """The grammar that a tool brings for its raw input, with the text around that input given; None where no such
        tool is forced, the engine does not follow that kind of grammar, or the dialect writes text as JSON."""
        demand, form = self._demand, self._form
        if not demand.must_call or len(demand.tools) != 1 or form is None or form.arguments is None:
            return None
        (tool,) = demand.tools
        syntax, tagged = tool.grammar_syntax, form.arguments
        if tool.grammar is None or syntax not in ("lark", "regex") or syntax not in guided or tagged.strings != "raw":
            return None
        opened = form.open_call(tool.name, self._calls_before) + tagged.opened(RAW_INPUT, text=True)
        return ConstraintPlan(
            constraint=Constraint(lark=tool.grammar) if syntax == "lark" else Constraint(regex=tool.grammar),
            prefill=self._close_thought() + form.section[0] + opened,
            suffix=tagged.closed(RAW_INPUT, text=True) + form.close_call() + form.section[1],
        )

    def schema_plan(self) -> ConstraintPlan | None:
        """A JSON schema for the part that is JSON, with the text around it given; None where there is no such part."""
        demand, form = self._demand, self._form
        if self._start.state == "header" and (form is None or form.thought is None):
            return None
        if demand.format is not None and not demand.tools:
            header = form.answer if form is not None and self._start.state == "header" else ""
            return ConstraintPlan(
                constraint=Constraint(json_schema=demand.format_schema), prefill=header or self._close_thought()
            )
        if not demand.must_call or form is None:
            return None
        before, after = self._close_thought() + form.section[0], form.section[1]
        if len(demand.tools) == 1 and form.arguments is None:
            (tool,) = demand.tools
            return ConstraintPlan(
                constraint=Constraint(json_schema=_schema(tool)),
                prefill=before + form.open_call(tool.name, self._calls_before),
                suffix=form.close_call() + after,
            )
        if not form.wraps_object or "{index}" in form.head:
            return None
        opened, _, keys = form.open_call("\0", "").partition("{")
        name_key, arguments_key = (part.strip(' ":,') for part in keys.split('"\0"'))
        choices = [
            {
                "type": "object",
                "properties": {name_key: {"const": tool.name}, arguments_key: _schema(tool)},
                "required": [name_key, arguments_key],
                "additionalProperties": False,
            }
            for tool in demand.tools
        ]
        return ConstraintPlan(
            constraint=Constraint(json_schema={"anyOf": choices}),
            prefill=before + opened,
            suffix=form.close_call().removeprefix("}") + after,
        )

    def opening(self) -> str:
        """The text that starts a forced call, as far as it is settled."""
        demand, form = self._demand, self._form
        if not demand.must_call or form is None:
            return ""
        if self._start.state == "header" and form.thought is None:
            return ""
        if len(demand.tools) == 1:
            head = form.open_call(demand.tools[0].name, self._calls_before)
            return self._close_thought() + form.section[0] + head
        return self._close_thought() + form.opener

    def _close_thought(self) -> str:
        reasoning = self._dialect.reasoning
        if reasoning is None or self._start.state != "reasoning":
            return ""
        return reasoning.close[0] + "\n\n"


def _tagged(grammar: Grammar, form: ArgumentForm, schema: Mapping[str, Any], hint: str) -> str:
    properties = schema.get("properties")
    required = schema.get("required")
    pairs = {
        str(key): _pair(grammar, form, str(key), sub, f"{hint}-{key}")
        for key, sub in (properties.items() if isinstance(properties, Mapping) else ())
    }
    separator = literal(form.between) if form.between else ""
    return grammar.members(hint, pairs, required if isinstance(required, list) else (), separator)


def _pair(grammar: Grammar, form: ArgumentForm, key: str, schema: Any, hint: str) -> str:
    text, other = (True, True) if form.strings == "json" else _may_be(schema)
    ways = []
    if text and form.strings == "raw":
        choices = schema.get("enum") if isinstance(schema, Mapping) and not other else None
        close = form.closed(key, text=True)
        if isinstance(choices, list) and choices and all(isinstance(choice, str) for choice in choices):
            value = f"({' | '.join(literal(choice) for choice in choices)}) {literal(close)}"
        else:
            value = grammar.until(close)
        ways.append(f"{literal(form.opened(key, text=True))} {value}")
    # Without a mark that tells text from JSON, free text already allows every JSON value.
    if other and (not ways or form.marks_text):
        opened, close = literal(form.opened(key, text=False)), form.closed(key, text=False)
        ways.append(f"{opened} {grammar.json(schema, hint)} {literal(close) if close else ''}".rstrip())
    return ways[0] if len(ways) == 1 else f"({' | '.join(ways)})"


def _may_be(schema: Any) -> tuple[bool, bool]:
    """Whether a value may be text, and whether it may be anything else."""
    if not isinstance(schema, Mapping):
        return True, True
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            ways = [_may_be(choice) for choice in schema[key]]
            return any(text for text, _ in ways), any(other for _, other in ways)
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values:
        return any(isinstance(v, str) for v in values), any(not isinstance(v, str) for v in values)
    kind = schema.get("type")
    kinds = [kind] if isinstance(kind, str) else kind
    if not isinstance(kinds, list) or not kinds:
        return True, True
    return "string" in kinds, any(one != "string" for one in kinds)
