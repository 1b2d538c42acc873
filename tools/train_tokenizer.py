"""Trains the tokenizer that ships with Turnwire from text of our own: a word list, sentence shapes and code shapes.

Promise: deterministic. The same word list and shapes give the same `turnwire-tokenizer.json`, byte for byte.

    python tools/train_tokenizer.py            write the file
    python tools/train_tokenizer.py --check    fail if the shipped file is not what this script makes
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / "src/turnwire/prompts/data/turnwire-tokenizer.json"
VOCAB = 8192
SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
CONTROL = frozenset(("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
# A word with the blank before it, up to three digits, a run of signs with the blank before it, blanks.
WORDS = r" ?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
STOPS = (". ", ". ", ". ", ", ", ", ", "; ", ": ", "? ", "! ", ".\n", ".\n\n", " (", ") ", '" ', "'s ", " - ")


def word_weights() -> tuple[list[str], list[float], list[str]]:
    """The words and their shares. Plain lines hold words, frequent ones first; `verb:`, `noun:`, `code:`, `upper:` and
    `proper:` lines hold words of that kind, which bring their own forms and are what code is named with."""
    shares: dict[str, float] = {}
    names: dict[str, None] = {}
    rank = 0
    for line in (HERE / "tokenizer_words.txt").read_text(encoding="utf-8").splitlines():
        kind, colon, rest = line.partition(": ")
        if not colon:
            for word in line.split():
                rank += 1
                shares.setdefault(word, 1.0 / (rank + 12))
            continue
        for word in rest.split():
            base = max(shares.get(word, 0.0), 0.0012)
            shares[word] = base
            names[word] = None
            stem = word[:-1] if word.endswith("e") else word
            plural = word[:-1] + "ies" if word.endswith("y") and word[-2] not in "aeo" else word + "s"
            if kind == "verb":
                past = word[:-1] + "ied" if plural.endswith("ies") else stem + "ed"
                for form in (plural, past, stem + "ing"):
                    shares.setdefault(form, base * 0.4)
            elif kind == "noun":
                shares.setdefault(plural, base * 0.5)
                names[plural] = None
    return list(shares), list(shares.values()), list(names)


def corpus(pieces: int) -> Iterator[str]:
    """Prose and code of `pieces` pieces, the same at every run."""
    chance = random.Random(20261115)  # noqa: S311 - text, not secrets
    words, weights, names = word_weights()
    totals = list(itertools.accumulate(weights))
    flat = [weight**0.6 for weight in weights]
    flat_totals = list(itertools.accumulate(flat))
    shapes = (HERE / "tokenizer_code.txt").read_text(encoding="utf-8").splitlines()

    def sentence(count: int) -> str:
        drawn = chance.choices(words, cum_weights=totals if chance.random() < 0.5 else flat_totals, k=count)
        drawn[0] = drawn[0][:1].upper() + drawn[0][1:]
        return " ".join(drawn)

    def filled(shape: str) -> str:
        def fill(found: re.Match[str]) -> str:
            match found[0]:
                case "{{":
                    return "{"
                case "}}":
                    return "}"
                case "{n}":
                    return str(int(chance.paretovariate(0.4)) % 10000)
                case "{d}":
                    return f"{chance.randrange(60):02d}"
                case "{b}":
                    return " " * chance.choice((2, 4, 4, 8, 8, 8, 12, 12, 12, 16, 16, 20, 24))
                case "{r}":
                    return chance.choice("-=#*_") * chance.choice((4, 8, 16, 32, 64))
                case "{l}":
                    return chance.choice("abcdefghilnoprstuvx")
                case "{S}":
                    return sentence(chance.randrange(2, 7))
                case kind:
                    common = chance.random() < 0.3
                    word = chance.choices(words, cum_weights=flat_totals)[0] if common else chance.choice(names)
                    word = word.replace("'", "")
                    if kind == "{U}":
                        return word.upper()
                    return word[:1].upper() + word[1:] if kind == "{C}" else word

        return re.sub(r"\{\{|\}\}|\{[nwCUSbdlr]\}", fill, shape)

    for _ in range(pieces):
        yield "".join(sentence(chance.randrange(3, 12)) + chance.choice(STOPS) for _ in range(12))
        at = chance.randrange(len(shapes))
        yield "\n".join(filled(shape) for shape in shapes[at : at + 8]) + "\n" * chance.randrange(1, 3)


def train(pieces: int = 24000) -> str:
    """The tokenizer file's text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - len(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(pieces), trainer)
    control = [text for text in SPECIAL if text in CONTROL]
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in control])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in SPECIAL if text not in CONTROL])
    whole = json.loads(tokenizer.to_str())
    whole["model"]["merges"] = [" ".join(pair) for pair in whole["model"]["merges"]]
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")) + "\n"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true", help="compare with the shipped file instead of writing it")
    made = train()
    if options.parse_args().check:
        same = TARGET.read_text(encoding="utf-8") == made
        print("same" if same else f"{TARGET.name} differs from what this script makes: run it without --check")
        return 0 if same else 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(made, encoding="utf-8")
    print(f"{TARGET.name}: {len(made.encode()) // 1024} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
