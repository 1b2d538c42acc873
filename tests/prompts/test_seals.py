"""Seals: what goes in comes out, and nothing else opens."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.prompts.recall.seal_bytes import MOST_IDS, PayloadError, pack, unpack
from turnwire.prompts.recall.seals import Sealer, Segment, TurnSealer, Unopened

KEY, OTHER_KEY = bytes(range(32)), bytes(range(32, 64))
MODEL, TENANT = "model-a", "tenant-a"
IDS = st.lists(st.integers(0, 2**32 - 1), max_size=200)


def turn(sealer: Sealer, turn_id: str = "turn1") -> TurnSealer:
    return sealer.turn(turn_id, model=MODEL, tenant=TENANT)


def opened(sealer: Sealer, seal: str) -> Segment:
    found = sealer.open(seal, model=MODEL, tenant=TENANT)
    assert isinstance(found, Segment), found
    return found


def refused(sealer: Sealer, seal: str, model: str = MODEL, tenant: str = TENANT) -> str:
    found = sealer.open(seal, model=model, tenant=tenant)
    assert isinstance(found, Unopened), found
    return found.reason


@given(
    st.lists(st.lists(IDS, max_size=4), min_size=1, max_size=5),
    IDS.filter(bool),
    st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=40),
)
def test_segments_restore_the_turn(parts: list[list[list[int]]], rest: list[int], turn_id: str) -> None:
    sealer = Sealer([KEY])
    made, whole, seals = turn(sealer, turn_id), [], []
    for batches in parts:
        for batch in batches:
            made.add(tuple(batch))
            whole += batch
        if seal := made.seal():
            seals.append(seal)
    made.add(rest)
    whole += rest
    trailing = made.finish()
    assert trailing is not None
    other = Sealer([KEY])
    segments = [opened(other, seal) for seal in [*seals, trailing]]
    assert segments == [opened(sealer, seal) for seal in [*seals, trailing]]
    assert [segment.number for segment in segments] == list(range(len(segments)))
    assert [segment.last for segment in segments] == [False] * len(seals) + [True]
    assert [token for segment in segments for token in segment.ids] == whole
    assert {segment.turn for segment in segments} == {turn_id}
    assert [segment.start for segment in segments] == [
        sum(len(before.ids) for before in segments[:place]) for place in range(len(segments))
    ]


def test_a_turn_without_ids_has_no_seal() -> None:
    made = turn(Sealer([KEY]))
    assert made.seal() == ""
    assert made.finish() is None


def test_a_turn_that_ends_with_its_thought_still_says_that_it_ended() -> None:
    sealer = Sealer([KEY])
    made = turn(sealer)
    made.add([1, 2, 3])
    made.seal()
    trailing = made.finish()
    assert trailing is not None
    assert opened(sealer, trailing).last
    assert len(opened(sealer, trailing).ids) == 0


def test_a_turn_too_long_is_not_sealed() -> None:
    made = turn(Sealer([KEY]))
    made.add(array("I", bytes(4 * (MOST_IDS + 1))))
    assert made.seal() == ""
    made.add([1])
    assert made.finish() is None


def sample(sealer: Sealer) -> str:
    made = turn(sealer)
    made.add(range(50))
    return made.seal()


# Of the same seal each time, or what can be drawn would depend on its random part.
SEAL = sample(Sealer([KEY]))


@given(st.data())
def test_changed_seals_do_not_open(data: st.DataObject) -> None:
    sealer, seal = Sealer([KEY]), SEAL
    place = data.draw(st.integers(0, len(seal) - 1))
    char = data.draw(st.sampled_from("ABCabc019-_.+/ é\x00").filter(lambda char: char != seal[place]))
    changed = seal[:place] + char + seal[place + 1 :]
    assert refused(sealer, changed) in ("foreign", "tampered", "truncated", "other_model", "other_tenant")


@given(st.integers(0, 200))
def test_cut_seals_do_not_open(kept: int) -> None:
    sealer = Sealer([KEY])
    seal = sample(sealer)
    kept = min(kept, len(seal) - 1)
    assert refused(sealer, seal[:kept]) in ("foreign", "truncated", "tampered")


@given(st.text(max_size=300))
def test_any_text_is_refused_with_a_reason(text: str) -> None:
    sealer = Sealer([KEY])
    refused(sealer, text)
    refused(sealer, "tw1." + text)


def test_each_refusal_has_its_reason() -> None:
    sealer = Sealer([KEY])
    seal = sample(sealer)
    assert refused(sealer, seal, model="model-b") == "other_model"
    assert refused(sealer, seal, tenant="tenant-b") == "other_tenant"
    assert refused(Sealer([OTHER_KEY]), seal) == "foreign"
    assert refused(sealer, "EqoBCkgIARABGAIiQL8") == "foreign"
    assert refused(sealer, seal[:-8]) == "truncated"
    assert refused(sealer, seal[:-8] + "A" * 8) == "tampered"
    assert refused(sealer, seal + "AAAA") == "tampered"
    assert refused(sealer, "tw1." + "A" * 9_000_000) == "too_large"


def test_what_a_sealer_remembers_of_its_seals_is_bounded() -> None:
    sealer = Sealer([KEY])
    first = sample(sealer)
    large = sealer.turn("large", model=MODEL, tenant=TENANT)
    large.add([1] * 900_000)  # more than is remembered, in a small seal
    assert len(opened(sealer, large.finish() or "").ids) == 900_000
    seals = [first]
    for number in range(6000):
        made = turn(sealer, f"turn{number}")
        made.add([number])
        seals.append(made.finish() or "")
    assert sealer.remembered < 4500
    assert list(opened(sealer, first).ids) == list(range(50))
    assert [list(opened(sealer, seal).ids) for seal in seals[-2:]] == [[5998], [5999]]


def test_a_seal_does_not_pass_for_another_segment_of_its_turn() -> None:
    sealer = Sealer([KEY])
    made = turn(sealer)
    made.add([1, 2])
    first = made.seal()
    made.add([3, 4])
    second = made.seal()
    # The number stands at a fixed place in the open part: swap it.
    assert refused(sealer, first[:41] + second[41:46] + first[46:]) in ("tampered", "truncated")


def test_old_keys_open_and_the_first_one_seals() -> None:
    old = sample(Sealer([OTHER_KEY]))
    rotated = Sealer([KEY, OTHER_KEY])
    assert list(opened(rotated, old).ids) == list(range(50))
    assert refused(Sealer([OTHER_KEY]), sample(rotated)) == "foreign"


def test_seals_of_equal_turns_differ() -> None:
    sealer = Sealer([KEY])
    assert sample(sealer) != sample(sealer)


def test_a_key_must_be_long_enough() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        Sealer([b"short"])
    with pytest.raises(ValueError, match="at least one"):
        Sealer([])


def test_a_seal_is_compact() -> None:
    made = turn(Sealer([KEY]))
    made.add([(7919 * place) % 150_000 for place in range(1000)])
    assert len(made.seal()) < 4.2 * 1000


@given(st.binary(max_size=120))
def test_any_payload_is_a_segment_or_an_error(payload: bytes) -> None:
    try:
        segment = unpack(payload, 3)
    except PayloadError:
        return
    assert unpack(pack(segment), 3) == segment


def test_a_payload_that_unpacks_beyond_its_count_is_an_error() -> None:
    segment = Segment(turn="t", number=0, start=0, last=False, ids=array("I", [7] * 5000))
    payload = bytearray(pack(segment))
    payload[10:14] = (10).to_bytes(4, "big")
    with pytest.raises(PayloadError):
        unpack(bytes(payload), 0)


@pytest.mark.parametrize("padding", ["=", "==", "===="])
def test_a_seal_with_padding_is_not_the_one_that_was_made(padding: str) -> None:
    sealer = Sealer([KEY])
    assert refused(sealer, sample(sealer) + padding) in ("tampered", "truncated")
