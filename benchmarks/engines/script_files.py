"""Writes the files of a playbook with a model's own tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

_BASE = {"id": "cmpl-0a1b2c3d4e5f60718293a4b5c6d7e8f9", "object": "text_completion", "created": 1, "model": "qwen3"}


def write_playbook(folder: Path, tokenizer_file: Path, scripts: Mapping[str, str], end: str = "<|im_end|>") -> None:
    """Write each script's ids and its stream; scripts are ASCII, so that each token is a piece of text."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    last = tokenizer.token_to_id(end)
    if last is None:
        raise ValueError(f"the tokenizer has no token {end}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in scripts.items():
        encoding = tokenizer.encode(text, add_special_tokens=False)
        pieces = [
            (number, text[start:stop]) for number, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True)
        ]
        if "".join(piece for _, piece in pieces) != text:
            raise ValueError(f"the tokens of {name!r} do not add up to its text")
        (folder / f"{name}.sse").write_text("\n\n".join(stream_lines(pieces, last)) + "\n\n")
        (folder / f"{name}.json").write_text(json.dumps([*encoding.ids, last]))


def stream_lines(pieces: Sequence[tuple[int, str]], last: int) -> list[str]:
    """The events of an answer on vLLM's completions wire: a token each, the finish, the usage, the end."""
    count = len(pieces) + 1
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": count,
        "total_tokens": 100 + count,
        "prompt_tokens_details": {"cached_tokens": 64},
    }
    said = [_chunk(piece, [number], None) for number, piece in pieces]
    return [*said, _chunk("", [last], "stop"), _line({**_BASE, "choices": [], "usage": usage}), "data: [DONE]"]


def _chunk(text: str, ids: list[int], finish: str | None) -> str:
    choice = {
        "index": 0,
        "text": text,
        "logprobs": None,
        "finish_reason": finish,
        "stop_reason": None,
        "token_ids": ids,
        "prompt_token_ids": None,
    }
    return _line({**_BASE, "choices": [choice]})


def _line(value: object) -> str:
    return "data: " + json.dumps(value, separators=(",", ":"))
