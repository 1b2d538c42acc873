"""A value comes back as it was written: its own markup, code about it, whole calls, other families' markup."""

from __future__ import annotations

import json
import os
import random
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import cut, events_of, merge
from samples import SAMPLES, TOOLS, markers

from turnwire.parsers import CallForm, Dialect, Start, dialects, resolve
from turnwire.parsers.codecs.channels import Channels
from turnwire.parsers.codecs.tagged import Tagged

EXAMPLES = int(os.environ.get("TURNWIRE_EXAMPLES", "10"))
# Whose templates write a line break around values or leave it out: a value cannot begin with one.
PAIRED = ("mimo", "seed_oss")
CALL_FORMS = {dialect.name: dialect.writes for dialect in dialects() if dialect.writes is not None}
WRITTEN = [pytest.param(dialect, id=dialect.name) for dialect in dialects() if dialect.writes is not None]


def write(form: CallForm, *calls: tuple[str, dict[str, Any]]) -> str:
    return form.written(*calls)


def told(dialect: Dialect, text: str, seed: int) -> list[tuple[str, Any, bool]]:
    """The calls of a text, which must be the same in every cut."""
    whole = merge(events_of(dialect, [text], TOOLS, Start(dialect.start.state if dialect.router else "content")), text)
    dice = random.Random(seed)
    for size in (1, dice.randint(2, 9), dice.randint(10, 40)):
        start = Start(dialect.start.state if dialect.router else "content")
        assert merge(events_of(dialect, cut(text, size), TOOLS, start), text) == whole, size
    return [(b.name, json.loads(b.text) if not b.malformed else b.text, b.malformed) for b in whole.of("tool_call")]


def values(dialect: Dialect, form: CallForm) -> st.SearchStrategy[str]:
    """Values made of markup. A marker that stands alone has a word after it: what no reader could tell from the
    value's own end is the closer with that after it which follows a value."""
    marks = markers(dialect)
    mark = st.sampled_from(marks)
    alone = st.tuples(mark, st.sampled_from([" and ", " x\n", " or\n\n", " -> "])).map("".join)
    code = st.tuples(
        st.sampled_from(
            ['if "{}" in text:\n', "text.split('{}')\n", "`{}`", 're.compile(r"{}(.*?)")\n', "# {} ends it\n"]
        ),
        mark,
    ).map(lambda pair: pair[0].format(pair[1]))
    pair = st.tuples(mark, mark).map(lambda two: f'text.find("{two[0]}{two[1]}")\n')
    quoted = st.sampled_from(
        [
            write(form, ("ls", {})),
            write(form, ("edit", {"path": "x", "count": 4})),
            write(form, ("edit", {"path": "a\nb"}), ("nosuch", {"q": "z", "path": "p"})),
            write(form, ("edit", {"path": write(form, ("edit", {"path": "deep"}))})),
        ]
    )
    other = st.sampled_from([SAMPLES[name] for name in SAMPLES if name != dialect.name])
    word = st.sampled_from(["def f():\n", "    return 1\n", "\n", " ", "é", '"', "\\n", "<", "</", "a < b\n"])
    mixed = st.lists(st.one_of(alone, code, pair, quoted, other, word), max_size=8).map("".join)
    router = dialect.router
    if not isinstance(router, Channels):
        return mixed
    if not isinstance(router.calls, Tagged):
        return mixed
    ends, begins = ("|".join(map(re.escape, texts)) for texts in (router.closes, router.opens + router.inner))
    next_message = re.compile(rf"(?:{ends})\s*(?:{begins})")
    quoted_whole = re.compile(r'\s*".*"\s*', re.DOTALL)  # a JSON string, where the family may write values as JSON
    may_be_json = router.calls.values.guess
    return mixed.filter(
        lambda value: next_message.search(value) is None and not (may_be_json and quoted_whole.fullmatch(value))
    )


@pytest.mark.parametrize("dialect", WRITTEN)
def test_any_value_comes_back_as_it_was_written(dialect):
    form = CALL_FORMS[dialect.name]

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(values(dialect, form), st.booleans(), st.integers(0, 2**32))
    def law(value, last, seed):
        value = value.lstrip("\n") if dialect.name in PAIRED else value
        arguments = {"count": 3, "path": value} if last else {"path": value, "count": 3}
        text = write(form, ("edit", arguments), *([] if form.single else [("ls", {})]))
        calls = [("edit", arguments, False), *([] if form.single else [("ls", {}, False)])]
        assert told(dialect, text, seed) == calls

    law()


PROBES = ["<tool_call>", "<function=", "<function=edit>", "<invoke name=", '<invoke name="edit">', "<arg_key>",
          "<arg_key>count</arg_key>", "<parameter=", "<parameter=count>", '<parameter name="count">', "</parameter>",
          "</function>", "</invoke>", "</tool_call>", "</arg_value>", "<｜DSML｜invoke name=",
          "<｜DSML｜parameter name="]  # fmt: skip


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("name", ["qwen3_coder", "nemotron_v3", "step3p5", "seed_oss", "glm45", "glm47", "minimax_m2",
                                  "deepseek_v3_2", "deepseek_v4", "hy_v3", "step3", "minicpm5", "mimo"])  # fmt: skip
def test_a_line_of_code_that_names_a_tag_is_code(name, probe):
    form, dialect = CALL_FORMS[name], resolve(name)
    for line in (f'if "{probe}" in text:', f"`{probe}`", f"x {probe} y"):
        text = write(form, ("edit", {"path": line, "count": 3}))
        assert told(dialect, text, 1) == [("edit", {"path": line, "count": 3}, False)], line
