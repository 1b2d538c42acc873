"""Looks for a text that breaks a law of the parsers, for as long as it is told to.

    python tests/parsers/fuzz.py --minutes 10            # all dialects
    python tests/parsers/fuzz.py --minutes 1 --seed 7 gemma4 pythonic

Texts are made of a dialect's own markers, of its samples with pieces dropped, doubled, moved or taken from another
family, and of noise. Each runs with random tools, start and end, in five cuts; any cut must give the same turn, the
raw text must come back, blocks must be disciplined, arguments must be JSON, and the work must stay within a bound that
grows with the text. A finding is cut down to its smallest form and printed; the exit status is then 1."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from running import events_of
from samples import SAMPLES, TOOLS, markers
from test_laws import FRAGMENTS, STARTS, same_in_any_cut

from turnwire.parsers import Dialect, Start, dialects, resolve
from turnwire.turns import Tool

CALLS_PER_CHARACTER = 400
"""More function calls than this for each character, and the work is not linear. Real texts need fewer than ten."""
TOOLSETS: tuple[tuple[Tool, ...], ...] = (
    tuple(TOOLS),
    (),
    (
        Tool(
            name="edit",
            schema={
                "properties": {
                    "path": {"anyOf": [{"type": "string"}, {"type": "object"}]},
                    "count": {"type": ["integer", "string"]},
                    "options": {"type": "array", "items": {"$ref": "#/properties/path"}},
                    "x": {"properties": {"item": {"enum": ["none", 3, None]}}},
                },
                "additionalProperties": {"type": "number"},
            },
        ),
    ),
)
NOISE = "abc \n\t\"'\\{}[]()<>|:,;=/`#$]<\u00e9\u2028\x00日🙂"


def text_for(dialect: Dialect, dice: random.Random) -> str:
    """A text that a dialect may meet."""
    known = [*markers(dialect), *FRAGMENTS]
    kind = dice.random()
    if kind < 0.3:
        return "".join(dice.choice(known) for _ in range(dice.randint(1, 40)))
    if kind < 0.35:
        return "".join(dice.choice(NOISE) for _ in range(dice.randint(1, 120)))
    text = SAMPLES[dialect.name]
    if kind < 0.45:
        other = SAMPLES[dice.choice(list(SAMPLES))]
        text = text[: dice.randint(0, len(text))] + other[dice.randint(0, len(other)) :]
    for _ in range(dice.randint(0, 6)):
        at, size = dice.randint(0, len(text)), dice.choice((0, 1, 1, 2, 5, 13, 40))
        piece = text[at : at + size]
        move = dice.random()
        if move < 0.3:
            text = text[:at] + text[at + size :]
        elif move < 0.45:
            text = text[:at] + piece * dice.choice((2, 2, 30)) + text[at + size :]
        elif move < 0.6:
            to = dice.randint(0, len(text))
            text = text[:to] + piece + text[to:]
        else:
            text = text[:at] + dice.choice(known) + text[at + size * dice.randint(0, 1) :]
    return text[: dice.randint(0, len(text))] if dice.random() < 0.25 else text


def counted(dialect: Dialect, text: str, start: Start, tools: tuple[Tool, ...]) -> int:
    """Function calls that reading the text character by character takes."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event != "return"

    sys.setprofile(count)
    try:
        events_of(dialect, text, tools, start)
    finally:
        sys.setprofile(None)
    return calls


def broken(dialect: Dialect, text: str, start: Start, seed: int, reason: str) -> str:
    """What law the text breaks; nothing if it holds them all."""
    tools = TOOLSETS[seed % len(TOOLSETS)]
    try:
        same_in_any_cut(dialect, text, start, seed, reason, tools)
        if seed % 16 == 0 and counted(dialect, text, start, tools) > CALLS_PER_CHARACTER * (len(text) + 10):
            return "work is out of bounds"
    except Exception as found:  # whatever it is, it is a finding
        return f"{type(found).__name__}: {str(found)[:200]}"
    return ""


def smallest(text: str, breaks: Callable[[str], bool]) -> str:
    """The text with everything left out that is not needed to break a law."""
    size = max(1, len(text) // 2)
    while size:
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + size :]
            if breaks(shorter):
                text = shorter
            else:
                at += size
        size //= 2
    return text


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("dialects", nargs="*", help="only these")
    reader.add_argument("--minutes", type=float, default=10)
    reader.add_argument("--seed", type=int, default=None)
    given = reader.parse_args()
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    dice = random.Random(seed)
    chosen = [resolve(name) for name in given.dialects] or list(dialects())
    thoughts = [dialect.name for dialect in dialects() if dialect.reasoning is not None]
    print(f"seed {seed}, {len(chosen)} dialects, {given.minutes} minutes", flush=True)
    until = time.monotonic() + given.minutes * 60
    texts = characters = findings = 0
    while time.monotonic() < until and findings < 5:
        plain = dice.choice(chosen)
        text = text_for(plain, dice)
        dialect = plain
        if plain.router is None and dice.random() < 0.1:
            dialect = resolve(plain.name, dice.choice(thoughts))
        start, cuts, reason = dice.choice(STARTS), dice.randrange(2**32), dice.choice(("stop", "stop", "length"))
        texts += 1
        characters += len(text)
        why = broken(dialect, text, start, cuts, reason)
        if why:
            findings += 1
            small = smallest(text, lambda t: bool(broken(dialect, t, start, cuts, reason)))  # noqa: B023
            print(f"{dialect.name} {start} {reason} cuts {cuts}: {broken(dialect, small, start, cuts, reason)}")
            print(f"   {small!r}", flush=True)
    print(f"{texts} texts, {characters} characters, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
