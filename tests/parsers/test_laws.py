"""The laws, for every dialect: any cut gives the same turn, nothing is lost, blocks are disciplined, work is linear."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import cut, events_of, merge
from samples import SAMPLES, TOOLS, markers

from turnwire.parsers import NOTES, Dialect, Start, dialects, resolve
from turnwire.parsers.codecs.braced.text import BracedText
from turnwire.parsers.codecs.json_text import JsonText
from turnwire.parsers.codecs.pythonic.text import PythonText
from turnwire.parsers.scanner import Scanner
from turnwire.turns import BlockDelta, Note, Tool

# `make test-slow` asks for more; a long run: TURNWIRE_EXAMPLES=20000 pytest tests/parsers/test_laws.py -k laws
EXAMPLES = int(os.environ.get("TURNWIRE_EXAMPLES", "20"))
EVERY = [pytest.param(dialect, id=dialect.name) for dialect in dialects()]
STARTS = (Start(), Start("reasoning"), Start("header"))
FRAGMENTS = (
    "edit", "ls", "nosuch", "path", "count", '"', "'", "\\", "{", "}", "[", "]", "(", ")", ":", ",", ";", "=", "<", ">",
    "</", "/", "|", "\n", "\n\n", " ", "  ", "\t", "a", "word", "3", "-1.5e3", "true", "True", "null", "None", "é",
    '{"name": "edit", "arguments": {"path": "x"}}', '{"path": "x", "count": 3}', "{}", '"name": ', '"arguments": ',
    "```", "```json\n", "``", "\u2028", "\x00", "\x7f", 'edit(path="x", count=3)', ' name="edit"', ' string="true"',
    "日本", "🙂", "x" * 600, '"arguments": "{\\"path\\": \\"x', "\\ud83d", "\\ude42", "\\u00", "\ud800",
)  # fmt: skip


def same_in_any_cut(
    dialect: Dialect, text: str, start: Start, seed: int, reason: str = "stop", tools: Sequence[Tool] = TOOLS
) -> None:
    whole = merge(events_of(dialect, [text], tools, start, reason), text)
    dice = random.Random(seed)
    sizes = [1, dice.randint(2, 4), dice.randint(5, 12)]
    for pieces in [cut(text, size) for size in sizes] + [_cut_at_random(text, dice)]:
        events = events_of(dialect, pieces, tools, start, reason)
        turn = merge(events, text)
        assert turn == whole, pieces
        for event in events:
            assert not isinstance(event, Note) or event.code in NOTES, event
    for block in whole.of("tool_call"):
        if not block.malformed:
            json.loads(block.text)
    if reason != "stop":
        assert whole.reason == reason
    else:
        assert whole.reason == ("tool_calls" if any(not b.malformed for b in whole.of("tool_call")) else "stop")


def _cut_at_random(text: str, dice: random.Random) -> list[str]:
    pieces, at = [], 0
    while at < len(text):
        step = dice.choice((0, 1, 1, 2, 3, 8, 21))
        pieces.append(text[at : at + step])
        at += step
    return pieces


@pytest.mark.parametrize("dialect", EVERY)
def test_every_dialect_has_a_sample(dialect):
    assert dialect.name in SAMPLES, "add an output of this family to samples.py"


@pytest.mark.parametrize("dialect", EVERY)
def test_laws_on_text_made_of_markers(dialect):
    pieces = st.lists(st.sampled_from([*markers(dialect) * 3, *FRAGMENTS]), max_size=30)

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(pieces, st.sampled_from(STARTS), st.integers(0, 2**32), st.sampled_from(["stop", "length"]))
    def law(parts, start, seed, reason):
        same_in_any_cut(dialect, "".join(parts), start, seed, reason)

    law()


@pytest.mark.parametrize("dialect", EVERY)
def test_laws_on_mutated_outputs(dialect):
    sample = SAMPLES[dialect.name]
    known = [*markers(dialect), *FRAGMENTS]
    size = len(sample)

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(
        st.lists(
            st.tuples(st.integers(0, size), st.integers(0, 30), st.sampled_from(["", "", *known])),
            min_size=0,
            max_size=4,
        ),
        st.integers(0, size),
        st.sampled_from(STARTS),
        st.integers(0, 2**32),
        st.sampled_from(["stop", "length"]),
    )
    def law(edits, end, start, seed, reason):
        text = sample[:end] if seed % 3 == 0 else sample
        for at, drop, add in edits:
            text = text[:at] + add + text[at + drop :]
        same_in_any_cut(dialect, text, start, seed, reason)

    law()


@pytest.mark.parametrize("dialect", EVERY)
def test_laws_on_any_text(dialect):
    @settings(max_examples=EXAMPLES // 2, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.text(max_size=80), st.sampled_from(STARTS), st.integers(0, 2**32))
    def law(text, start, seed):
        same_in_any_cut(dialect, text, start, seed)

    law()


@pytest.mark.parametrize("dialect", EVERY)
def test_a_sample_has_its_two_calls(dialect):
    start = Start("reasoning") if SAMPLES[dialect.name].startswith("Plan") else None
    turn = merge(events_of(dialect, [SAMPLES[dialect.name]], TOOLS, start), SAMPLES[dialect.name])
    calls = turn.of("tool_call")
    if not dialect.calls and dialect.router is None:
        assert calls == []
        return
    assert [(c.name, c.malformed) for c in calls] == [("edit", False), ("ls", False)], turn
    assert json.loads(calls[0].text)["count"] == 3
    assert json.loads(calls[1].text) == {}
    assert [b.text for b in turn.of("text")][-1].strip() in {"Done.", "On it. Done."}
    assert turn.reason == "tool_calls"


# ------------------------------------------------------------------------------------------------------ work


class Work:
    """Counts the characters that scanners and readers look at."""

    def __init__(self, monkeypatch):
        self.count = 0
        find, at = Scanner.find, Scanner.at

        def counted_find(scanner, text, pos, closing=False):
            start, stop = find(scanner, text, pos, closing)
            self.count += (stop if stop >= 0 else len(text)) - pos + 1
            return start, stop

        def counted_at(scanner, text, pos, closing=False):
            self.count += 1
            return at(scanner, text, pos, closing)

        def counted(feed):
            def counted_feed(reader, text, pos, *rest):
                stop = feed(reader, text, pos, *rest)
                self.count += stop - pos + 1
                return stop

            return counted_feed

        monkeypatch.setattr(Scanner, "find", counted_find)
        monkeypatch.setattr(Scanner, "at", counted_at)
        for reader in (JsonText, PythonText, BracedText):
            monkeypatch.setattr(reader, "feed", counted(reader.feed))


@pytest.mark.slow
@pytest.mark.parametrize("dialect", EVERY)
@pytest.mark.parametrize("size", [3, 10_000_000])
def test_work_doubles_when_the_argument_doubles(dialect, size, monkeypatch):
    sample = SAMPLES[dialect.name]
    work = Work(monkeypatch)
    filling = 'if a < b and "c":\\n    x[1] = {2} </p '
    spent = []
    for times in (1, 2):
        long = filling.replace('"', "'") * (800 * times)
        text = sample.replace("src/a", long).replace('"path": "a', '"path": "' + long).replace("2>&1", long)
        text = text.replace("On it.", "On it. " + long)
        work.count = 0
        events_of(dialect, cut(text, size), TOOLS)
        spent.append(work.count / len(text))
    assert spent[1] < spent[0] * 1.1 + 0.1, spent


@pytest.mark.parametrize("dialect", EVERY)
def test_work_is_linear_on_repeated_markers(dialect, monkeypatch):
    work = Work(monkeypatch)
    for marker in [*markers(dialect), "<", '{"name"', "[", "("]:
        spent = []
        for times in (300, 600):
            work.count = 0
            events_of(dialect, [marker * times], TOOLS)
            spent.append(work.count / times)
        assert spent[1] < spent[0] * 1.2 + len(marker), (marker, spent)


@pytest.mark.slow
def test_deep_nesting_is_bounded():
    for dialect in dialects():
        for text in (
            '{"name": "edit", "arguments": ' + '{"a":' * 20000,
            "[" * 20000,
            SAMPLES[dialect.name] + "(" * 20000,
        ):
            merge(events_of(dialect, [text], TOOLS), text)
    deep = '<tool_call>{"name": "edit", "arguments": ' + '{"a":' * 5000 + "1" + "}" * 5000 + "}</tool_call>"
    assert merge(events_of(resolve("hermes"), [deep], TOOLS), deep).blocks[0].malformed


@pytest.mark.parametrize("name", ["qwen3_coder", "hermes", "deepseek_v3_2", "glm45", "minimax_m2", "kimi_k2"])
def test_a_string_argument_streams_as_it_comes(name):
    """Once the value has begun, every piece of it is passed on at once."""
    sample = SAMPLES[name]
    value = {"qwen3_coder": "src/a", "deepseek_v3_2": "2>&1", "glm45": "a <", "minimax_m2": ">a<"}.get(name, ': "a')
    at = sample.index(value) + len(value) - 1
    text = sample[:at] + "word " * 400 + sample[at:]
    start = Start("reasoning") if sample.startswith("Plan") else None
    events = events_of(resolve(name), cut(text, 5), TOOLS, start)
    assert sum(isinstance(event, BlockDelta) for event in events) > 350
