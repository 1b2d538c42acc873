"""Stop strings in streamed text: any cut, the same end; nothing of the stop string leaks."""

from __future__ import annotations

import random

import pytest

from turnwire.engines.http.spelling import Speller
from turnwire.engines.http.stops import StopFinder

from .toytokenizer import ToyTokenizer


def run(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    finder, out = StopFinder(stops), ""
    for piece in pieces:
        out += finder.feed(piece)
        if finder.found is not None:
            return out, finder.found
    return out + finder.flush(), None


@pytest.mark.parametrize(
    ("text", "stops", "kept", "found"),
    [
        ("hello world", ["zzz"], "hello world", None),
        ("hello world", [], "hello world", None),
        ("hello world", ["", "o w"], "hell", "o w"),
        ("aaab", ["aab"], "a", "aab"),
        ("ababac", ["abac"], "ab", "abac"),
        ("one two", ["two", "one"], "", "one"),
        ("half a STO", ["STOP"], "half a STO", None),
        ("日本語", ["本"], "日", "本"),
    ],
)
def test_every_cut(text: str, stops: list[str], kept: str, found: str | None) -> None:
    assert run([text], stops) == (kept, found)
    assert run(list(text), stops) == (kept, found)
    dice = random.Random(text)
    for _ in range(50):
        cuts = sorted(dice.sample(range(len(text) + 1), 2))
        assert run([text[: cuts[0]], text[cuts[0] : cuts[1]], text[cuts[1] :]], stops) == (kept, found)


def test_only_what_may_become_a_stop_is_held() -> None:
    finder = StopFinder(["END"])
    assert finder.feed("some text") == "some text"
    assert finder.feed(" E") == " "
    assert finder.feed("x") == "Ex"


def test_a_speller_says_which_tokens_were_taken() -> None:
    tokenizer = ToyTokenizer()
    ids = tokenizer.encode("one two three four")
    assert Speller(tokenizer, ()).feed(ids) == ("one two three four", 4)
    speller = Speller(tokenizer, ("two t",))
    assert speller.feed(ids) == ("one ", 3)
    assert speller.stopped_by == "two t"
    assert speller.flush() == ""


def test_a_speller_flushes_what_it_held() -> None:
    tokenizer = ToyTokenizer()
    speller = Speller(tokenizer, ("never",))
    assert speller.feed([*tokenizer.encode("ne"), 0xE6])[0] == ""
    assert speller.flush() == "ne\ufffd"
