"""Constraints in the model's own dialect: what grammars accept, that parsers read it back, plans for lesser engines."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.engines.gbnf_matcher import Language

from turnwire.engines.guided.grammar import Grammar
from turnwire.engines.guided.plan import ConstraintPlan, plan_constraint
from turnwire.engines.interface import Capabilities, Constraint
from turnwire.parsers import CallForm, Parser, Start, dialects, resolve, start_state
from turnwire.turns import (
    Conversation,
    Message,
    OutputFormat,
    Thinking,
    Tool,
    ToolCallClosed,
    ToolChoice,
    ToolResultBlock,
)

READ = Tool(
    name="read_file",
    schema={
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "lines": {"type": "integer"},
            "mode": {"type": "string", "enum": ["text", "raw"]},
            "flags": {"type": "array", "items": {"type": "boolean"}},
        },
        "required": ["path"],
    },
)
NOW = Tool(name="now", schema={"type": "object", "properties": {}})
TOKENS = Capabilities(yields="tokens", guided=frozenset({"json_schema", "gbnf"}))
SCHEMA_ONLY = Capabilities(yields="tokens", guided=frozenset({"json_schema"}))
UNGUIDED = Capabilities(yields="tokens")


HEADER = start_state("<|end|><|start|>assistant", resolve("harmony"))


def conversation(mode: Any = "required", name: str | None = None, **more: Any) -> Conversation:
    parallel = more.pop("parallel", True)
    choice = ToolChoice(mode=mode, name=name, parallel=parallel)
    return Conversation(model="m", messages=(), tools=more.pop("tools", (READ, NOW)), tool_choice=choice, **more)


def write_turn(form: CallForm, *calls: tuple[str, dict[str, Any]]) -> str:
    return form.written(*calls)


def language(plan: ConstraintPlan) -> Language:
    assert plan.constraint is not None
    assert plan.constraint.gbnf is not None
    return Language(plan.constraint.gbnf)


CALLS = [
    ("read_file", {"path": 'a "b".txt'}),
    ("read_file", {"path": "src/ü.py", "lines": -3, "mode": "raw", "flags": [True, False]}),
    ("now", {}),
]
CALL_FORMS = {dialect.name: dialect.writes for dialect in dialects() if dialect.writes is not None}
FORMS = [pytest.param(name, form, id=name) for name, form in CALL_FORMS.items()]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_what_the_grammar_asks_for_is_what_the_parser_reads(name: str, form: CallForm) -> None:
    dialect = resolve(name)
    assert dialect.name == name
    start = HEADER if form.thought else Start()
    plan = plan_constraint(conversation(), dialect, TOKENS, start)
    accepts = language(plan).accepts
    for call in CALLS:
        text = write_turn(form, call)
        assert accepts(text), text
        parser = Parser(dialect, (READ, NOW), start)
        events = [*parser.feed(text), *parser.finish("stop")]
        (closed,) = [event for event in events if isinstance(event, ToolCallClosed)]
        assert (closed.name, json.loads(closed.arguments)) == call
        assert plan.check is not None
        assert plan.check.faults([(closed.name, closed.arguments)], "") == ()
    assert accepts(write_turn(form, *CALLS)) is not form.single
    for wrong in (
        "",
        "I would rather talk.",
        write_turn(form, ("rm", {})),
        write_turn(form, ("read_file", {"lines": 3})),
        write_turn(form, ("read_file", {"path": "x", "mode": "hex"})),
        write_turn(form, ("read_file", {"path": "x", "lines": "many"})),
        write_turn(form, CALLS[0]) + " and so on",
    ):
        assert not accepts(wrong), wrong


def test_every_dialect_with_calls_has_a_form_or_says_why_not() -> None:
    for dialect in dialects():
        calls = bool(dialect.calls) or dialect.router is not None
        assert calls is (dialect.writes is not None or bool(dialect.no_form)), dialect.name


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "glm47", "mistral"])
def test_a_named_choice_allows_that_tool_once(name: str) -> None:
    form, dialect = CALL_FORMS[name], resolve(name)
    accepts = language(plan_constraint(conversation("named", "now"), dialect, TOKENS)).accepts
    assert accepts(write_turn(form, ("now", {})))
    assert not accepts(write_turn(form, ("now", {}), ("now", {})))
    assert not accepts(write_turn(form, CALLS[0]))
    one = language(plan_constraint(conversation(parallel=False), dialect, TOKENS)).accepts
    assert one(write_turn(form, CALLS[0]))
    assert not one(write_turn(form, *CALLS))


def test_thoughts_come_first_where_the_model_has_them() -> None:
    form = CALL_FORMS["qwen3"]
    call = write_turn(form, CALLS[0])
    open_thought = language(plan_constraint(conversation(), resolve("qwen3"), TOKENS, Start("reasoning"))).accepts
    assert open_thought("Hm, <think a bit> a < b.\n</think>\n\n" + call)
    assert not open_thought(call)
    may_think = language(plan_constraint(conversation(), resolve("qwen3"), TOKENS, Start())).accepts
    assert may_think(call)
    assert may_think("<think>\nhm\n</think>\n\n" + call)
    assert not may_think("<think>\nhm\n" + call)
    off = conversation(thinking=Thinking(mode="off"))
    assert not language(plan_constraint(off, resolve("qwen3"), TOKENS)).accepts("<think></think>" + call)
    accepts = language(plan_constraint(conversation(), resolve("harmony"), TOKENS, HEADER)).accepts
    thought = "<|channel|>analysis<|message|>I need it.<|end|><|start|>assistant"
    assert accepts(thought + write_turn(CALL_FORMS["harmony"], CALLS[0]))


def test_strict_tools_leave_prose_free_and_calls_held() -> None:
    strict = Tool(name="read_file", schema=READ.schema, strict=True)
    wish = conversation("auto", tools=(strict, NOW))
    form = CALL_FORMS["hermes"]
    plan = plan_constraint(wish, resolve("hermes"), TOKENS)
    accepts = language(plan).accepts
    assert accepts("Just talk, with <tools> and a < b.")
    assert accepts("Let me see.\n" + write_turn(form, CALLS[0]))
    assert accepts(write_turn(form, ("now", {"anything": 1})))
    assert not accepts("Let me see.\n" + write_turn(form, ("read_file", {"lines": 3})))
    assert plan.check is not None
    assert not plan.check.must_call


def test_nothing_demanded_is_nothing_planned() -> None:
    for wish in (conversation("auto"), conversation("none"), conversation("required", tools=())):
        assert plan_constraint(wish, resolve("hermes"), TOKENS) == ConstraintPlan()


ANSWER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def test_structured_output() -> None:
    wish = conversation("auto", tools=(), format=OutputFormat(kind="json_schema", schema=ANSWER))
    plan = plan_constraint(wish, resolve("qwen3"), TOKENS, Start("reasoning"))
    accepts = language(plan).accepts
    assert accepts('one two\n</think>\n\n{"n": 3}')
    assert accepts('</think>{\n  "n": 3\n}')
    assert not accepts('{"n": 3}')
    assert not accepts('</think>{"n": 3, "m": 4}')
    assert not accepts("</think>" + "{" + "\n" * 50 + '"n": 3}')
    assert plan.check is not None
    assert plan.check.faults([], '{"n": 3}') == ()
    assert plan.check.faults([], '{"n": "3"}') == ("n is not of type integer",)
    assert "JSON" in plan.check.faults([], "three")[0]
    loose = conversation("auto", tools=(), format=OutputFormat(kind="json_object"))
    assert language(plan_constraint(loose, resolve("hermes"), TOKENS)).accepts('{"any": [1, null, {"x": "y"}]}')
    headed = language(plan_constraint(wish, resolve("harmony"), TOKENS, HEADER)).accepts
    assert headed('<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>{"n": 3}')
    assert not headed('{"n": 3}')
    assert plan_constraint(wish, resolve("harmony"), SCHEMA_ONLY, HEADER).prefill == "<|channel|>final<|message|>"
    both = conversation("auto", format=OutputFormat(kind="json_schema", schema=ANSWER))
    accepts = language(plan_constraint(both, resolve("hermes"), TOKENS)).accepts
    assert accepts('{"n": 1}')
    assert accepts(write_turn(CALL_FORMS["hermes"], CALLS[0]))


def test_an_engine_that_knows_only_schemas_gets_the_text_around_them() -> None:
    named = plan_constraint(conversation("named", "read_file"), resolve("hermes"), SCHEMA_ONLY)
    assert named.prefill == '<tool_call>\n{"name": "read_file", "arguments": '
    assert named.suffix == "}\n</tool_call>"
    assert named.constraint is not None
    assert named.constraint.json_schema == READ.schema
    several = plan_constraint(conversation(), resolve("qwen3"), SCHEMA_ONLY, Start("reasoning"))
    assert several.prefill == "</think>\n\n<tool_call>\n"
    assert several.suffix == "\n</tool_call>"
    assert several.constraint is not None
    first = several.constraint.json_schema["anyOf"][0]  # type: ignore[index]
    assert first["properties"] == {"name": {"const": "read_file"}, "arguments": READ.schema}
    kimi = plan_constraint(conversation("named", "now"), resolve("kimi_k2"), SCHEMA_ONLY)
    assert kimi.prefill.endswith("functions.now:0<|tool_call_argument_begin|>")
    wish = conversation("auto", tools=(), format=OutputFormat(kind="json_schema", schema=ANSWER))
    answer = plan_constraint(wish, resolve("qwen3"), SCHEMA_ONLY, Start("reasoning"))
    assert (answer.prefill, answer.suffix) == ("</think>\n\n", "")


@pytest.mark.parametrize("name", ["hermes", "llama3_json", "nemotron_deci", "deepseek_v3", "internlm2", "harmony"])
def test_prefill_output_and_suffix_make_one_call(name: str) -> None:
    start = HEADER if name == "harmony" else Start()
    plan = plan_constraint(conversation("named", "read_file"), resolve(name), SCHEMA_ONLY, start)
    parser = Parser(resolve(name), (READ, NOW), start)
    events = [
        *parser.feed(plan.prefill),
        *parser.feed('{"path": "x"}'),
        *parser.feed(plan.suffix),
        *parser.finish("stop"),
    ]
    (closed,) = [event for event in events if isinstance(event, ToolCallClosed)]
    assert (closed.name, json.loads(closed.arguments)) == ("read_file", {"path": "x"})


PATCH = Tool(
    name="apply_patch",
    kind="custom",
    schema={"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
    grammar="start: /[a-z]+/",
    grammar_syntax="lark",
)
LARK = Capabilities(yields="tokens", guided=frozenset({"json_schema", "gbnf", "lark", "regex"}))


@pytest.mark.parametrize("name", sorted(name for name, form in CALL_FORMS.items() if form.arguments is not None))
@pytest.mark.parametrize("syntax", ["lark", "regex"])
def test_the_grammar_of_a_forced_raw_tool_goes_to_engines_that_follow_it(name: str, syntax: str) -> None:
    tool = msgspec.structs.replace(PATCH, grammar_syntax=syntax)
    asked = conversation("named", "apply_patch", tools=(tool, NOW))
    dialect = resolve(name)
    plan = plan_constraint(asked, dialect, LARK)
    form = CALL_FORMS[name]
    if form.arguments is not None and form.arguments.strings == "json":
        assert plan.constraint is None or getattr(plan.constraint, syntax) is None
        return
    assert plan.constraint == Constraint(**{syntax: tool.grammar})
    parser = Parser(dialect, [tool])
    events = [*parser.feed(plan.prefill + "ab\ncd" + plan.suffix), *parser.finish("stop")]
    calls = [(event.name, json.loads(event.arguments)) for event in events if isinstance(event, ToolCallClosed)]
    assert calls == [("apply_patch", {"input": "ab\ncd"})]
    assert plan.check is not None
    assert plan.check.faults([("apply_patch", '{"input": "ab"}')], "") == ()


def test_the_grammar_of_a_raw_tool_stays_home_where_it_cannot_be_followed() -> None:
    forced = conversation("named", "apply_patch", tools=(PATCH, NOW))
    qwen = resolve("qwen3_coder")
    other = plan_constraint(forced, qwen, TOKENS).constraint
    assert other is not None
    assert other.gbnf is not None
    hermes = plan_constraint(forced, resolve("hermes"), LARK).constraint
    assert hermes is not None
    assert hermes.lark is None
    assert plan_constraint(conversation("auto", tools=(PATCH, NOW)), qwen, LARK).constraint is None


def test_an_engine_without_guidance_gets_a_start_and_a_check() -> None:
    named = plan_constraint(conversation("named", "now"), resolve("qwen3_coder"), UNGUIDED)
    assert named.prefill == "<tool_call>\n<function=now>\n"
    assert named.constraint is None
    assert [note.code for note in named.notes] == ["constraint.unguided"]
    assert plan_constraint(conversation(), resolve("hermes"), UNGUIDED).prefill == '<tool_call>\n{"name": "'
    assert plan_constraint(conversation(), resolve("plain"), UNGUIDED).prefill == ""
    tagged = plan_constraint(conversation("named", "read_file"), resolve("glm45"), SCHEMA_ONLY)
    assert tagged.constraint is None
    assert tagged.prefill == "<tool_call>read_file\n"
    events = plan_constraint(conversation(), resolve("hermes"), Capabilities(yields="events"))
    assert events.constraint is None
    assert events.prefill == ""
    assert events.check is not None


def test_checks_name_what_is_wrong() -> None:
    check = plan_constraint(conversation("named", "read_file"), resolve("hermes"), TOKENS).check
    assert check is not None
    assert check.faults([], "no") == ("no call was made, though read_file was required",)
    assert check.faults([("now", "{}")], "") == ("now was called instead of read_file",)
    assert check.faults([("rm", "{}")], "") == ("rm is not a tool on offer",)
    assert check.faults([("read_file", "{}")], "") == ("read_file: path is missing",)
    assert check.faults([("read_file", '{"path": 3}')], "") == ("read_file: path is not of type string",)


def test_deferred_tools_count_once_loaded_and_custom_tools_take_text() -> None:
    later = Tool(name="later", deferred=True)
    patch = Tool(name="apply_patch", kind="custom")
    wish = conversation(tools=(NOW, later, patch))
    plan = plan_constraint(wish, resolve("hermes"), TOKENS)
    assert plan.check is not None
    assert set(plan.check.tools) == {"now", "apply_patch"}
    accepts = language(plan).accepts
    assert accepts(write_turn(CALL_FORMS["hermes"], ("apply_patch", {"input": "*** Begin\n+x"})))
    assert not accepts(write_turn(CALL_FORMS["hermes"], ("later", {})))
    loading = Message(role="user", blocks=(ToolResultBlock(call_id="1", references=("later",)),))
    loaded = Conversation(model="m", messages=(loading,), tools=(later,), tool_choice=ToolChoice(mode="required"))
    assert language(plan_constraint(loaded, resolve("hermes"), TOKENS)).accepts(
        write_turn(CALL_FORMS["hermes"], ("later", {}))
    )


SCHEMAS: list[tuple[Any, list[Any], list[Any]]] = [
    ({"type": "integer"}, [0, -12, 7], ["x", 1.5, None, True]),
    ({"type": "number"}, [0, -1.25, 1e10], ["1", None]),
    ({"type": ["string", "null"]}, ["", "é\n\"", None], [1, []]),
    ({"enum": ["a", 1, None]}, ["a", 1, None], ["b", 2]),
    ({"const": {"k": 1}}, [], [{"k": 2}]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc"], ["a", "abcd"]),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
     [[1], [1, 2]], [[], [1, 2, 3], ["a"]]),
    ({"type": "array", "maxItems": 0}, [[]], [[1]]),
    ({"type": "array"}, [[], [1, "a", {}]], [{}]),
    ({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"], "additionalProperties": False},
     [{"b": 1}, {"a": 1, "b": 2}, {"b": 1, "c": 2}, {"a": 1, "b": 2, "c": 3}], [{}, {"a": 1}, {"b": 1, "d": 2}]),
    ({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
     [{}, {"a": 1}, {"a": 1, "x": "y"}, {"x": "y"}], [{"x": 1}]),
    ({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]}, [1, ["a"]], ["a", [1]]),
    ({"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}},
                         "additionalProperties": False}}, "$ref": "#/$defs/node"},
     [{}, {"next": {"next": {}}}], [{"next": 1}, 3]),
    ({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]},
     [{"a": 1, "b": 2}], [{"a": 1}, {"b": 1}]),
    ({}, [1, "a", None, {"x": [1]}], []),
    (True, [1, {}], []),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "good", "bad"), SCHEMAS)
def test_grammar_and_checker_agree_on_schemas(schema: Any, good: list[Any], bad: list[Any]) -> None:
    from turnwire.engines.guided.schema_check import faults

    grammar = Grammar()
    accepts = Language(grammar.text(grammar.json(schema))).accepts
    for value in good:
        assert accepts(json.dumps(value, ensure_ascii=False)), value
        assert faults(value, schema) == ()
    for value in bad:
        assert not accepts(json.dumps(value)), value
        assert faults(value, schema)


CHECKED: list[tuple[Any, Any, bool]] = [
    ({"minimum": 3}, 3, True),
    ({"minimum": 3}, 2, False),
    ({"exclusiveMinimum": 3}, 3, False),
    ({"maximum": 3}, 4, False),
    ({"exclusiveMaximum": 3}, 3, False),
    ({"multipleOf": 5}, 10, True),
    ({"multipleOf": 5}, 11, False),
    ({"minItems": 2}, [1], False),
    ({"maxLength": 2}, "abc", False),
    ({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, [1, "a"], True),
    ({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, ["a"], False),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 3, False),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, 3, True),
    ({"not": {"type": "string"}}, "a", False),
    ({"not": {"type": "string"}}, 1, True),
    ({"type": "integer"}, True, False),
    ({"type": "integer"}, 3.0, True),
    ({"enum": [1]}, True, False),
    ({"properties": {"a": False}}, {"a": 1}, False),
    ({"$ref": "#/nowhere"}, 1, True),
    ({"$ref": "#"}, 1, True),
    ({"pattern": "^(a+)+$"}, "b", True),
]


@pytest.mark.parametrize(("schema", "value", "fits"), CHECKED)
def test_the_checker(schema: Any, value: Any, fits: bool) -> None:
    from turnwire.engines.guided.schema_check import faults

    assert (faults(value, schema) == ()) is fits


def test_hostile_schemas_stay_bounded() -> None:
    from turnwire.engines.guided.schema_check import faults

    deep: Any = {"type": "string"}
    value: Any = "x"
    for _ in range(200):
        deep, value = {"type": "object", "properties": {"a": deep}}, {"a": value}
    wide = {"type": "object", "properties": {f"p{n}": {"type": "array", "items": {"enum": [n]}} for n in range(3000)}}
    for schema in (deep, wide):
        grammar = Grammar()
        assert len(grammar.text(grammar.json(schema))) < 2_000_000
    assert faults(value, deep) == ()
    assert len(faults({f"p{n}": 1 for n in range(3000)}, wide)) == 8


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [False, 1]},
        {"allOf": [{"properties": ["a"], "required": "a"}]},
        {"type": "object", "properties": {"a": {}}, "required": [{"a": 1}, ["a"], "a"]},
        {"properties": 1, "required": [1], "allOf": [{"required": [{}]}, {"properties": {"a": {"type": "string"}}}]},
    ],
)
def test_a_schema_that_no_validator_would_take_still_has_a_grammar(schema: dict[str, Any]) -> None:
    grammar = Grammar()
    assert grammar.json(schema)
