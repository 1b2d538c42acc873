"""The sandbox: the reference's behaviour, and bounds on everything a template can do."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from turnwire.prompts.templates.sandbox import Budget
from turnwire.prompts.templates.template import ChatTemplate, TemplateFailure, default_template


def render(source: str, messages: list[dict[str, Any]] | None = None, **args: Any) -> str:
    clock = lambda: datetime(2026, 3, 4)  # noqa: E731
    template = ChatTemplate(source, {"bos_token": "<s>"}, clock=clock, budget=lambda: Budget(50_000, 1_000_000))
    return template.render(messages or [], args=args)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ {'b': 'é<', 'a': [1, none]} | tojson }}", '{"b": "é<", "a": [1, null]}'),
        ("{{ {'b': 1} | tojson(indent=2) }}", '{\n  "b": 1\n}'),
        ("{{ {'b': 1, 'a': 2} | tojson(separators=(',', ':'), sort_keys=true) }}", '{"a":2,"b":1}'),
        ("{{ 'é' | tojson(ensure_ascii=true) }}", '"\\u00e9"'),
        ("{{ ['x', 'y'] | map('upper') | tojson }}", '["X", "Y"]'),
        ("{{ ['x', 'y'] | map('upper') | join(', ') }}{{ [{'n': 1}] | join(attribute='n') }}", "X, Y1"),
        ("{{ 'a-b-c' | replace('-', '+') }}{{ 'a-b-c' | replace('-', '', 1) }}", "a+b+cab-c"),
        ("{{ '%s is %d' | format(1768435200, 12345678901234567890) }}", "1768435200 is 12345678901234567890"),
        ("{{ '%s=%s' | format('at', -1768435200) }}{{ '{}!'.format(1768435200) }}", "at=-17684352001768435200!"),
        ("{{ ('{\"k\": [1]}' | from_json).k[0] }}", "1"),
        ("{{ strftime_now('%d %b %Y') }}", "04 Mar 2026"),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "13"),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "1"),
        ("a{% generation %}b{{ bos_token }}{% endgeneration %}c", "ab<s>c"),
        ("  {% if true %}\n  x\n  {% endif %}\ny", "  x\ny"),
        ("{% set l = [] %}{% set _ = l.append('z') %}{{ l[0] }}", "z"),
        ("{{ add_generation_prompt }} {{ tools is none }}", "True True"),
        (
            "{% set d = {'items': 1, 'k': 2} %}{{ d.k }}{{ d['items'] }}{{ d.none is defined }}{{ d.keys() | list }}",
            "21False['items', 'k']",
        ),
        ("{% set n = namespace(a=1) %}{% set n.b = 2 %}{{ n.a }}{{ n.b }}{{ n.c is defined }}", "12False"),
        (
            "{% for i in 'ab' %}{{ loop.index }}{{ loop.last }}{{ loop.nosuch is defined }}{% endfor %}",
            "1FalseFalse2TrueFalse",
        ),
        ("{{ 'a'.nosuch is defined }}{{ 'aXb'.split('X')[-1] }}{{ '{}'.format('z') }}", "Falsebz"),
    ],
)
def test_behaves_as_the_reference(source: str, expected: str) -> None:
    assert render(source) == expected


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("{{ raise_exception('no') }}", "refused"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "budget"),
        (
            "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
            "budget",
        ),
        (
            "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
            "budget",
        ),
        ("{{ 'x' * 10 ** 10 }}", "budget"),
        ("{{ 9 ** 9999999 }}", "budget"),
        ("{{ 'x' | center(10000000000) }}", "budget"),
        ("{{ '%9999999999d' | format(1) }}", "budget"),
        ("{{ '{:9999999999}'.format(1) }}", "budget"),
        ("{{ [1] | slice(10000000000) | list }}", "budget"),
        ("{{ lipsum(n=1000000) }}", "error"),
        ("{{ '%9999999999d' % 1 }}", "budget"),
        ("{{ '%*d' % (9999999, 1) }}", "budget"),
        ("{{ '%-*d' | format(9999999, 1) }}", "budget"),
        ("{{ '{:{}}'.format(1, 999999999) }}", "budget"),
        ("{{ 'x'.center(10 ** 10) }}", "budget"),
        ("{{ ('a' * 5000) | replace('a', 'b' * 5000) }}", "budget"),
        ("{{ 'a' | replace('', 'b' * 600000) }}", "budget"),
        ("{{ (['a' * 5000] * 5000) | join }}", "budget"),
        ("{{ ['a', 'b', 'c'] | join('x' * 600000) }}", "budget"),
        ("{{ ('x' * 600000).join(['a', 'b', 'c']) }}", "budget"),
        ("{{ ('a' * 5000).replace('a', 'b' * 5000) }}", "budget"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "budget"),
        ("{% for i in range(50000) %}{{ 'x' * 100 }}{% endfor %}", "budget"),
        ("{{ ''.__class__.__mro__ }}", "forbidden"),
        ("{{ messages.__class__.__init__.__globals__ }}", "forbidden"),
        ("{{ {}.__class__.__mro__ }}", "forbidden"),
        ("{% set n = namespace() %}{{ n.__class__.__mro__ }}", "forbidden"),
        ("{% for i in [1] %}{{ loop.__class__.__mro__ }}{% endfor %}", "forbidden"),
        ("{{ missing.field }}", "error"),
        ("{{ 1 + 'x' }}", "error"),
        ("{% for i in 5 %}{% endfor %}", "error"),
    ],
)
def test_ends_badly_behaved_templates(source: str, kind: str) -> None:
    with pytest.raises(TemplateFailure) as failure:
        render(source)
    assert failure.value.kind == kind


@pytest.mark.parametrize("source", ["{% if %}", "{{ 'x", "{% generation %}", "{% for %}", "{{ 1 | nosuchfilter }}"])
def test_says_when_a_template_does_not_compile(source: str) -> None:
    with pytest.raises(TemplateFailure, match="does not compile"):
        ChatTemplate(source)


def test_no_clock_means_no_date() -> None:
    source = "{{ strftime_now('%Y') if strftime_now is defined else 'timeless' }}"
    assert ChatTemplate(source).render([]) == "timeless"
    assert ChatTemplate(source).with_clock(lambda: datetime(2026, 1, 1)).render([]) == "2026"


def test_a_template_that_changes_its_lists_cannot_change_ours() -> None:
    messages = [{"role": "user", "content": "x", "list": [1]}]
    source = "{% set _ = messages[0].list.append(2) %}{{ messages[0].list }}"
    template = ChatTemplate(source)
    assert template.render(messages) == "[1, 2]"
    assert template.render(messages) == "[1, 2]"
    assert messages[0]["list"] == [1]


def test_older_names_are_served_where_a_template_asks_for_them() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    template = ChatTemplate("{{ functions }} {{ datetime }}", clock=lambda: datetime(2026, 1, 2))
    assert '"name": "f"' in template.render([], tools=tools)
    assert template.render([], tools=tools).endswith("2026-01-02")


def test_arguments_cannot_hide_the_conversation() -> None:
    template = ChatTemplate("{{ messages[0].content }}{{ extra }}")
    shown = template.render([{"role": "user", "content": "real"}], args={"messages": [], "extra": "!"})
    assert shown == "real!"


def test_our_own_template_whole() -> None:
    call = {"id": "1", "function": {"name": "look", "arguments": {"path": "a b", "depth": 2}}}
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "tool", "content": "one", "tool_call_id": "1"},
    ]
    text = default_template().render(messages, tools=[{"type": "function", "function": {"name": "look"}}])
    assert text.startswith("<|im_start|>system\n# Tools\n\n")
    assert '\n{"name": "look"}\n</tools>' in text
    assert text.endswith(
        "\n\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\n"
        "<tool_call>\n<function=look>\n<parameter=path>\na b\n</parameter>\n<parameter=depth>\n2\n</parameter>\n"
        "</function>\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\none\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    )
