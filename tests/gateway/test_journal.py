"""What is kept of a turn that is over: small and without words, and a summary of it when somebody reads."""

from __future__ import annotations

import msgspec

from turnwire.gateway.telemetry.journal import EndedTurn, Journal, TurnFilter, TurnSummary, summary_of
from turnwire.gateway.turns.record import BlockTimes, TurnRecord
from turnwire.prompts.prompt import Section
from turnwire.turns import Conversation

from .conftest import Serve
from .test_messages import request


async def ended(serve: Serve) -> EndedTurn:
    client = await serve({"text": "Hm.\n</think>\n\nYes, of course."})
    await client.post("/v1/messages", request(stream=False))
    kept = client.gateway.journal._turns[0]
    assert isinstance(kept, EndedTurn)
    return kept


async def test_no_record_and_no_conversation_is_kept(serve: Serve) -> None:
    kept = await ended(serve)
    parts = [getattr(kept, name) for name in kept.__struct_fields__]
    assert not any(isinstance(part, TurnRecord | Conversation) for part in parts)
    assert all(isinstance(section, Section) for section in kept.sections)


async def test_words_that_a_verdict_repeats_are_not_kept(serve: Serve) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nYes."}, {"text": "Hm.\n</think>\n\nNo."})
    headers = {"x-turnwire-session": "s"}
    for word in ("hunter1", "hunter2"):
        messages = [{"role": "user", "content": f"The password is {word}."}]
        await client.post("/v1/messages", request(messages=messages, stream=False), **headers)
    assert "hunter" not in repr(list(client.gateway.journal._turns))


async def test_a_summary_is_the_same_whenever_it_is_made(serve: Serve) -> None:
    kept = await ended(serve)
    assert summary_of(kept) == summary_of(kept)
    # On a busy machine the turn may have waited for a millisecond.
    spans = [span.kind for span in summary_of(kept).spans]
    assert spans[-3:] == ["prefill", "reasoning", "text"]
    assert spans[:-3] in ([], ["queue"])


async def test_of_a_turn_with_very_many_parts_the_summary_is_kept(serve: Serve) -> None:
    kept = await ended(serve)
    sections = tuple(Section("message" if at % 2 else "turn", at, at, at + 1) for at in range(1000))
    blocks = [BlockTimes("text", "", kept.started, kept.started + 1)] * 1000
    journal = Journal(9)
    for turn in (kept, msgspec.structs.replace(kept, sections=sections), msgspec.structs.replace(kept, blocks=blocks)):
        journal.add(turn)
    assert [type(each) for each in journal._turns] == [TurnSummary, TurnSummary, EndedTurn]
    long = summary_of(msgspec.structs.replace(kept, sections=sections))
    assert list(journal.last(9))[1] == long
    assert (long.sections, len(long.layout)) == ({"turn": 500, "message": 500}, 41)
    assert len(list(journal.last(9, TurnFilter(turn=kept.turn_id)))) == 3


async def test_who_listens_hears_the_summary(serve: Serve) -> None:
    kept, journal = await ended(serve), Journal(2)
    heard: list[TurnSummary] = []
    stop = journal.listen(heard.append)
    journal.add(kept)
    stop()
    journal.add(kept)
    assert heard == [summary_of(kept)]
