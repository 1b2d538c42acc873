"""An engine stand-in, as the rules use it: set to say a given turn, and asked which prompt it read.

Promise: the folder is all that the two share; what is not there yet is nothing.

A stand-in's folder holds `SCENE.N.json` (the token ids of the N-th turn of a scene), `tokenizer.json`, and `now` with
"SCENE.N PERIOD", which the stand-in reads at each request. It appends a line to `heard` for every prompt (a JSON list
of token ids) and `"left"` for every request that was cancelled before its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from turnwire.conformance.scenes import SCENES, spoken

__all__ = ["Folder", "StandIn", "write_folder"]

_MOST = 64 * 1024 * 1024


class StandIn(Protocol):
    """What is known of the engine behind a server."""

    def play(self, scene: str, turn: int) -> None:
        """Choose what the next request is answered with."""

    def tokens(self, scene: str, turn: int) -> Sequence[int]:
        """The ids of a turn, with the one that ends it."""

    def heard(self) -> list[list[int]]:
        """The prompts that were read, oldest first."""

    def left(self) -> int:
        """How many requests were cancelled."""

    def text(self, ids: Sequence[int]) -> str:
        """Token ids as text, special tokens included."""


class Folder:
    """A stand-in in another process."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self._folder = folder
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(
                f"{folder} is not a stand-in's folder: its tokenizer.json cannot be read: {error}"
            ) from None

    def play(self, scene: str, turn: int) -> None:
        new = self._folder / "now.new"
        new.write_text(f"{scene}.{turn} {SCENES[scene].period}\n", encoding="utf-8")
        new.replace(self._folder / "now")

    def tokens(self, scene: str, turn: int) -> list[int]:
        return msgspec.json.decode((self._folder / f"{scene}.{turn}.json").read_bytes(), type=list[int])

    def heard(self) -> list[list[int]]:
        return [line for line in self._lines() if isinstance(line, list)]

    def left(self) -> int:
        return sum(line == "left" for line in self._lines())

    def text(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def _lines(self) -> list[list[int] | str]:
        file = self._folder / "heard"
        if not file.exists() or file.stat().st_size > _MOST:
            return []
        whole = file.read_bytes()
        # A line that is being written has no end yet.
        return [
            msgspec.json.decode(line, type=list[int] | str) for line in whole[: whole.rfind(b"\n") + 1].splitlines()
        ]


def write_folder(folder: Path, tokenizer_file: Path, end: str = "<|im_end|>") -> None:
    """Write a folder that a stand-in plays from, with the model's own tokenizer."""
    from tokenizers import Tokenizer

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes(tokenizer_file.read_bytes())
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    last = tokenizer.token_to_id(end)
    if last is None:
        raise ValueError(f"the tokenizer has no token {end}")
    for scene in SCENES.values():
        for number, turn in enumerate(scene.turns):
            ids = tokenizer.encode(spoken(turn), add_special_tokens=False).ids
            (folder / f"{scene.name}.{number}.json").write_bytes(msgspec.json.encode([*ids, last]))
    (folder / "heard").write_bytes(b"")
    Folder(folder).play("answer", 0)
