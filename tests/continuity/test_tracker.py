"""The tracker: the exact divergence, its cause, and bounds."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.continuity import SessionTracker, Verdict, session_key, shared_prefix, sketch_of
from turnwire.prompts.prompt import Prompt, Section
from turnwire.turns import (
    Conversation,
    Message,
    Note,
    ReasoningBlock,
    TextBlock,
    Thinking,
    Tool,
    ToolCallBlock,
    ToolResultBlock,
    TurnContext,
)

IDS = st.lists(st.integers(0, 3), max_size=40)


def prompt(ids: Sequence[int], *sections: tuple[str, int, int], notes: Sequence[Note] = ()) -> Prompt:
    """Sections are given as kind, index and end."""
    made, start = [], 0
    for kind, index, end in sections:
        made.append(Section(kind, index, start, end))  # type: ignore[arg-type]
        start = end
    return Prompt(ids=ids, tail="", sections=tuple(made), notes=tuple(notes))


def said(role: str, text: str) -> Message:
    return Message(role=role, blocks=(TextBlock(text=text),))  # type: ignore[arg-type]


TOOLS = (Tool(name="Read", description="reads"), Tool(name="Write", description="writes"))
CALL = Message(
    role="assistant",
    blocks=(
        ReasoningBlock(text="I look.", seal="tw1.x"),
        TextBlock(text="Looking."),
        ToolCallBlock(id="c1", name="Read", arguments='{"path": "/a"}'),
    ),
)
RESULT = Message(role="user", blocks=(ToolResultBlock(call_id="c1", content=(TextBlock(text="empty"),)),))
BASE = Conversation(
    model="m", messages=(said("system", "Today is 2026-11-15. Be brief."), said("user", "Hi.")), tools=TOOLS
)
LONGER = msgspec.structs.replace(BASE, messages=(*BASE.messages, CALL, RESULT))
SYSTEM, TOOLS_END, USER = 10, 20, 30


def changed(base: Conversation, place: int, message: Message) -> Conversation:
    messages = list(base.messages)
    messages[place] = message
    return msgspec.structs.replace(base, messages=tuple(messages))


def after(
    before: Conversation,
    now: Conversation,
    at: int,
    *,
    thought: bool = True,
    notes: Sequence[Note] = (),
    kind: str | None = None,
) -> Verdict:
    """The verdict on a prompt that differs from token `at` on. The previous prompt has 40 tokens and 20 of output."""
    tracker = SessionTracker()
    tracker.remember("k", prompt(range(100, 140)), before, range(140, 160), thought=thought)
    ids = [*range(100, 100 + at), *range(900, 980 - at)]
    if kind is None:
        sections = [("system", 0, SYSTEM), ("tools", 0, TOOLS_END), ("message", 1, USER), ("message", 2, 80)]
    else:
        sections = [(kind, 7, 80)]
    return tracker.compare("k", prompt(ids, *sections, notes=notes), now)


@given(IDS, IDS, IDS)
def test_the_divergence_is_exact(before: list[int], output: list[int], now: list[int]) -> None:
    tracker = SessionTracker()
    tracker.remember("k", prompt(before), BASE, output)
    verdict = tracker.compare("k", prompt(now, ("message", 0, len(now))), BASE)
    whole = before + output
    expected = next(
        (place for place, (one, other) in enumerate(zip(whole, now, strict=False)) if one != other),
        min(len(whole), len(now)),
    )
    assert verdict.shared == expected
    assert verdict.expected == len(whole)
    if expected in (len(whole), len(now)):
        assert verdict.state == "held"
        assert verdict.lost == 0
    else:
        assert verdict.state == "broken"
        assert (verdict.section, verdict.index) == ("message", 0)
        assert verdict.lost == len(whole) - expected
        assert verdict.words is not None


@given(st.integers(0, 20_000), st.integers(0, 20_000))
def test_long_prefixes_are_compared_exactly(size: int, at: int) -> None:
    one = array("I", range(size))
    other = array("I", one)
    if at < size:
        other[at] = 4_000_000
    assert shared_prefix(one, other) == min(at, size)


def test_the_first_turn_has_nothing_to_hold() -> None:
    verdict = SessionTracker().compare("k", prompt([1, 2]), BASE)
    assert verdict == Verdict(state="first")


CASES = {
    "billing line": (
        changed(BASE, 0, said("system", "x-anthropic-billing-header: a\nBe brief.")),
        changed(BASE, 0, said("system", "x-anthropic-billing-header: b\nBe brief.")),
        3,
        "billing_line",
    ),
    "date": (BASE, changed(BASE, 0, said("system", "Today is 2026-11-16. Be brief.")), 3, "date"),
    "date in words": (
        changed(BASE, 0, said("system", "It is Sunday, November 15th, 2026, 10:22.")),
        changed(BASE, 0, said("system", "It is Monday, November 16th, 2026, 9:05.")),
        3,
        "date",
    ),
    "system": (BASE, changed(BASE, 0, said("system", "Today is 2026-11-15. Be long.")), 5, "system_changed"),
    "tool order": (BASE, msgspec.structs.replace(BASE, tools=TOOLS[::-1]), 12, "tool_order"),
    "tool added": (BASE, msgspec.structs.replace(BASE, tools=(*TOOLS, Tool(name="Edit"))), 15, "tools_changed"),
    "tools in the system section": (BASE, msgspec.structs.replace(BASE, tools=TOOLS[:1]), 5, "tools_changed"),
    "model": (BASE, msgspec.structs.replace(BASE, model="n"), 0, "model_changed"),
    "thinking": (BASE, msgspec.structs.replace(BASE, thinking=Thinking(mode="off")), 5, "settings_changed"),
    "edited": (LONGER, changed(LONGER, 1, said("user", "Bye.")), 25, "message_edited"),
    "timestamp": (
        changed(LONGER, 1, said("user", "[Sun 2026-11-15 10:22] Hi.")),
        changed(LONGER, 1, said("user", "[Sun 2026-11-15 10:23] Hi.")),
        25,
        "date",
    ),
    "moved": (
        msgspec.structs.replace(BASE, messages=(*BASE.messages, said("user", "context"))),
        msgspec.structs.replace(BASE, messages=(*BASE.messages, said("assistant", "Yes."), said("user", "context"))),
        32,
        "message_moved",
    ),
    "thought dropped by the client": (
        LONGER,
        changed(LONGER, 2, Message(role="assistant", blocks=CALL.blocks[1:])),
        33,
        "reasoning_dropped_by_client",
    ),
    "arguments": (
        LONGER,
        changed(
            LONGER,
            2,
            Message(
                role="assistant",
                blocks=(*CALL.blocks[:2], ToolCallBlock(id="c1", name="Read", arguments='{"path":"/a"}')),
            ),
        ),
        36,
        "arguments_rewritten",
    ),
    "thought dropped by the template": (
        LONGER,
        msgspec.structs.replace(LONGER, messages=(*LONGER.messages, said("assistant", "Done."), said("user", "Go."))),
        33,
        "reasoning_dropped_by_template",
    ),
    "tools beside a user message": (
        LONGER,
        msgspec.structs.replace(LONGER, tools=(*TOOLS, Tool(name="Edit"))),
        25,
        "tools_changed",
    ),
    "went back and edited": (
        msgspec.structs.replace(LONGER, messages=LONGER.messages + (CALL, RESULT) * 5),
        changed(BASE, 1, said("user", "Hi there.")),
        25,
        "message_edited",
    ),
    "a new window": (
        msgspec.structs.replace(LONGER, context=TurnContext(window="t:0")),
        changed(
            msgspec.structs.replace(BASE, context=TurnContext(window="t:1")), 1, said("user", "Hi. And what was done.")
        ),
        25,
        "compaction",
    ),
    "a new window of as many messages": (
        msgspec.structs.replace(LONGER, context=TurnContext(window="t:0")),
        msgspec.structs.replace(
            BASE,
            messages=(*BASE.messages, said("user", "What was done."), said("user", "Go on.")),
            context=TurnContext(window="t:1"),
        ),
        33,
        "compaction",
    ),
    "after a compaction request": (
        msgspec.structs.replace(LONGER, context=TurnContext(turn_class="compaction")),
        changed(BASE, 1, said("user", "Hi. And what was done.")),
        25,
        "compaction",
    ),
    "compaction": (
        msgspec.structs.replace(LONGER, messages=LONGER.messages + (CALL, RESULT) * 5),
        changed(BASE, 1, said("user", "Summary of what was done.")),
        25,
        "compaction",
    ),
    "rerendered": (
        msgspec.structs.replace(BASE, messages=(*BASE.messages, said("assistant", "Yes."))),
        msgspec.structs.replace(BASE, messages=(*BASE.messages, said("assistant", "Yes."), said("user", "More."))),
        35,
        "rerendered",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_causes_in_the_prompt(case: str) -> None:
    before, now, at, cause = CASES[case]
    verdict = after(before, now, at)
    assert (verdict.state, verdict.shared, verdict.expected) == ("broken", at, 60)
    assert verdict.cause == cause
    section = "system" if at < SYSTEM else "tools" if at < TOOLS_END else "message"
    assert verdict.section == section


def test_details_name_what_changed() -> None:
    assert "Edit" in after(*CASES["tool added"][:3]).detail
    assert "2026-11-1" in after(*CASES["date"][:3]).detail
    assert "from m to n" in after(*CASES["model"][:3]).detail


OUTPUT_CASES = {
    "client dropped the thought": (CALL.blocks[1:], True, (), "reasoning_dropped_by_client"),
    "template dropped the thought": (CALL.blocks, True, (), "reasoning_dropped_by_template"),
    "arguments": (CALL.blocks[1:], False, (), "arguments_rewritten"),
    "edited arguments": (
        CALL.blocks,
        True,
        (Note("replay.edited.arguments"),),
        "arguments_rewritten",
    ),
    "edited text": (
        CALL.blocks,
        True,
        (Note("replay.edited.text"),),
        "message_edited",
    ),
    "lost seal": (CALL.blocks, True, (Note("replay.seal_foreign"),), "turn_rewritten"),
}


@pytest.mark.parametrize("case", OUTPUT_CASES)
def test_causes_in_the_last_output(case: str) -> None:
    blocks, thought, notes, cause = OUTPUT_CASES[case]
    now = msgspec.structs.replace(BASE, messages=(*BASE.messages, Message(role="assistant", blocks=blocks), RESULT))
    assert after(BASE, now, 45, thought=thought, notes=notes).cause == cause


def test_a_rewound_conversation_is_an_edit() -> None:
    again = changed(BASE, 1, said("user", "Hi."))
    assert after(BASE, again, 45).cause == "message_edited"


def test_a_rule_of_the_template_is_told_from_the_way_back_to_its_turn() -> None:
    """The conversation goes back by a turn, and a new question makes the template leave a thought out."""
    tracker = SessionTracker()
    thought = Message(role="assistant", blocks=(ReasoningBlock(text="Hm."), TextBlock(text="Yes.")))
    answered = msgspec.structs.replace(BASE, messages=(*BASE.messages, thought, RESULT))
    asked = msgspec.structs.replace(BASE, messages=(*answered.messages, said("user", "Otherwise, please.")))
    tracker.remember("k", prompt(range(50)), BASE, range(50, 60), thought=True, turn="one")
    tracker.remember("k", prompt(range(70)), answered, range(70, 80), thought=True, turn="two")
    verdict = tracker.compare("k", prompt([*range(50), *range(55, 60)]), asked)
    assert (verdict.turn, verdict.cause) == ("one", "reasoning_dropped_by_template")


def test_a_turn_that_the_client_began_is_no_edit() -> None:
    begun = msgspec.structs.replace(BASE, messages=(*BASE.messages, said("assistant", "The sky")))
    whole = (*BASE.messages, said("assistant", "The sky is blue."), said("user", "Why?"))
    now = msgspec.structs.replace(BASE, messages=whole)
    assert after(begun, now, 45, thought=False).cause == "turn_rewritten"


def test_a_retry_and_a_prompt_cut_short_hold() -> None:
    tracker = SessionTracker()
    tracker.remember("k", prompt([1, 2, 3]), BASE, [4, 5])
    assert tracker.compare("k", prompt([1, 2, 3]), BASE).state == "held"
    assert tracker.compare("k", prompt([1, 2, 3, 4, 5, 6]), LONGER) == Verdict(state="held", shared=5, expected=5)


def test_threads_of_one_session_do_not_disturb_each_other() -> None:
    tracker = SessionTracker()
    other = Conversation(model="m", messages=(said("system", "You are a helper."), said("user", "Count.")))
    tracker.remember("k", prompt(range(50)), BASE, [7])
    tracker.remember("k", prompt(range(500, 540)), other, [8])
    assert tracker.compare("k", prompt([*range(50), 7, 9]), LONGER).state == "held"
    assert tracker.compare("k", prompt([*range(500, 540), 8, 9]), other).state == "held"


def turn(number: int, *, side: bool = False) -> Conversation:
    """The conversation of a main turn after `number` earlier ones, or of a side question at that point."""
    messages = [*BASE.messages]
    for each in range(number):
        messages += [said("assistant", f"Answer {each}."), said("user", f"Question {each}.")]
    if side:
        messages.append(said("user", "Sum this up."))
    return msgspec.structs.replace(BASE, messages=tuple(messages))


def test_side_requests_do_not_break_the_main_thread() -> None:
    tracker = SessionTracker()
    ids = list(range(50))
    for number in range(12):
        verdict = tracker.compare("k", prompt(ids), turn(number))
        assert verdict.state == ("held" if number else "first")
        assert verdict.turn == (f"main{number - 1}" if number else "")
        tracker.remember("k", prompt(ids), turn(number), [1000 + number], turn=f"main{number}")
        ids += [1000 + number]
        aside = [*ids, 5000 + number]
        asked = tracker.compare("k", prompt(aside), turn(number + 1, side=True))
        assert (asked.state, asked.turn, asked.shared) == ("held", f"main{number}", len(ids))
        tracker.remember("k", prompt(aside), turn(number + 1, side=True), [6000], turn=f"side{number}")
        ids += [2000 + number]


def test_a_break_after_a_side_request_is_one_of_the_main_thread() -> None:
    tracker = SessionTracker()
    tracker.remember("k", prompt(range(50)), turn(1), [1, 2, 3], turn="main")
    tracker.remember("k", prompt([*range(50), 1, 2, 3, 9]), turn(2, side=True), [6], turn="side")
    verdict = tracker.compare("k", prompt([*range(50), 1, 7, 8], ("message", 0, 53)), turn(2))
    assert (verdict.state, verdict.turn, verdict.shared, verdict.expected) == ("broken", "main", 51, 53)


def test_turns_that_another_process_served_leave_no_false_verdict() -> None:
    ids = {number: [*range(50), *range(1000, 1000 + 10 * number)] for number in range(4)}
    here, there = SessionTracker(), SessionTracker()
    here.remember("k", prompt(ids[0]), turn(0), range(1000, 1005))
    there.remember("k", prompt(ids[1]), turn(1), range(1010, 1015))
    assert here.compare("k", prompt(ids[2]), turn(2)).state == "first"
    other = [*range(45), *range(2000, 2020)]
    assert here.compare("k", prompt(other, ("message", 0, 65)), turn(2)).state == "first"
    assert there.compare("k", prompt(ids[2]), turn(2)).state == "held"


def test_a_turn_that_was_cut_was_read_all_the_same() -> None:
    tracker = SessionTracker()
    asked = prompt(range(54), ("message", 0, 50), ("generation", 1, 54))
    tracker.remember("k", prompt(range(40)), turn(0), turn="whole")
    tracker.remember("k", asked, turn(1), range(900, 950), turn="cut", cut=True)
    again = tracker.compare("k", asked, turn(1))
    assert (again.state, again.shared) == ("held", 50)
    partly_kept = tracker.compare("k", prompt([*range(50), 777, 778]), turn(2))
    assert (partly_kept.state, partly_kept.turn, partly_kept.shared) == ("held", "cut", 50)


def test_the_header_of_a_turn_is_the_last_one_of_its_prompt() -> None:
    """Turns that are put in exactly have headers of their own before them."""
    sections = (("message", 0, 20), ("generation", 1, 24), ("turn", 1, 40), ("message", 2, 50), ("generation", 3, 54))
    asked = prompt(range(54), *sections)
    tracker = SessionTracker()
    tracker.remember("k", asked, turn(1), range(900, 950), turn="cut", cut=True)
    assert tracker.compare("k", asked, turn(1)).shared == 50
    assert sketch_of(asked, turn(1), turn="cut", cut=True).end == 50


def test_a_clock_in_the_template_is_told_from_the_template_s_rule() -> None:
    longer = msgspec.structs.replace(LONGER, messages=(*LONGER.messages, said("assistant", "Yes."), said("user", "?")))
    tracker = SessionTracker()
    tracker.remember("k", msgspec.structs.replace(prompt(range(40)), stamp="2026-01-01"), LONGER, [1])
    now = prompt([*range(5), *range(500, 550)], ("frame", 0, 55))
    assert tracker.compare("k", msgspec.structs.replace(now, stamp="2026-01-02"), longer).cause == "template_clock"
    same = tracker.compare("k", msgspec.structs.replace(now, stamp="2026-01-01"), longer)
    assert same.cause == "reasoning_dropped_by_template"


def test_what_the_engine_lost_is_an_eviction() -> None:
    held = Verdict(state="held", shared=20_000, expected=20_000)
    assert held.reported(19_000).cause is None
    assert held.reported(0).cause == "evicted"
    assert held.reported(0).cached == 0
    assert Verdict(state="first").reported(0).cause is None
    small = Verdict(state="held", shared=900, expected=900)
    assert small.reported(0).cause is None


def test_only_the_differing_part_of_long_texts_is_looked_through() -> None:
    filler = "2026-01-01 10:00 " * 20_000
    one, other = (changed(BASE, 0, said("system", f"{filler}Now {day}.{filler}")) for day in ("Monday", "Tuesday"))
    assert after(one, other, 5).cause == "date"
    third = changed(BASE, 0, said("system", f"{filler}Now or never.{filler}"))
    assert after(one, third, 5).cause == "system_changed"


def test_session_keys_are_the_same_in_every_process() -> None:
    assert session_key("t", BASE) == "1:t:opening:207187eef258c7701e814acc/"


def test_a_named_turn_is_the_one_compared_with() -> None:
    tracker = SessionTracker()
    other = Conversation(model="m", messages=(said("system", "You are a helper."), said("user", "Count.")))
    tracker.remember("k", prompt(range(50)), BASE, [7], turn="one")
    tracker.remember("k", prompt(range(500, 540)), other, [8], turn="two")
    longer = prompt([*range(50), 7, 9])
    assert tracker.compare("k", longer, LONGER, previous="one").state == "held"
    against = tracker.compare("k", longer, LONGER, previous="two")
    assert (against.state, against.found) == ("first", True)
    unknown = tracker.compare("k", longer, LONGER, previous="three")
    assert (unknown.state, unknown.found) == ("held", False)


def test_an_unrelated_prompt_is_a_first_one() -> None:
    tracker = SessionTracker()
    tracker.remember("k", prompt(range(50)), BASE, [7])
    stranger = Conversation(model="m", messages=(said("system", "Else."), said("user", "Different.")))
    assert tracker.compare("k", prompt(range(900, 950)), stranger).state == "first"


def test_memory_is_bounded_and_the_idle_leave_first() -> None:
    tracker = SessionTracker(max_bytes=60_000)
    for number in range(30):
        tracker.remember(f"k{number}", prompt(range(1000)), BASE)
        tracker.compare("k0", prompt(range(1000)), BASE)
    assert tracker.compare("k0", prompt(range(1000)), BASE).state == "held"
    assert tracker.compare("k1", prompt(range(1000)), BASE).state == "first"
    assert len(tracker) < 12


def test_what_is_larger_than_the_memory_is_not_kept() -> None:
    tracker = SessionTracker(max_bytes=5000)
    tracker.remember("k", prompt(range(10_000)), BASE)
    assert len(tracker) == 0


def test_a_finished_session_is_forgotten() -> None:
    tracker = SessionTracker()
    tracker.remember("k", prompt([1]), BASE)
    tracker.forget("k")
    tracker.forget("k")
    assert tracker.compare("k", prompt([1]), BASE).state == "first"


def test_session_keys_tell_tenants_agents_and_side_calls_apart() -> None:
    def key(tenant: str = "t", **context: str) -> str:
        return session_key(tenant, msgspec.structs.replace(BASE, context=TurnContext(**context)))

    keys = {
        key(session="s"),
        key(session="s2"),
        key("t2", session="s"),
        key(session="s", agent="a"),
        key(session="s", turn_class="title"),
        key(),
    }
    assert len(keys) == 6
    assert key() == session_key("t", LONGER)
    assert key(session="s") == key(session="s", turn_class="compaction")
