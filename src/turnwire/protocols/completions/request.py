"""A Completions request: prompts as text or token ids, and how to go on from them.

Promise: every field is honoured, noted or refused with its path; nothing is put before or behind a prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.protocols.chat.fields import SAMPLING_FIELDS, Fields
from turnwire.protocols.context import turn_context
from turnwire.protocols.json_body import invalid
from turnwire.protocols.limits import Limits
from turnwire.turns import Note, Sampling, TurnContext

__all__ = ["Asked", "decode"]

_HONOURED = SAMPLING_FIELDS | {
    "model",
    "prompt",
    "suffix",
    "echo",
    "n",
    "best_of",
    "max_tokens",
    "logprobs",
    "stream",
    "stream_options",
    "user",
}
_DEFAULT_TOKENS = 16
_PROMPTS_OF_MOST_CHOICES = 4
_MOST_LOGPROBS = 20


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. Each prompt is text or token ids and gets `choices` answers; `echo` puts its text before each
    of them. `usage`: a stream ends with a usage chunk."""

    model: str
    prompts: tuple[str | tuple[int, ...], ...]
    sampling: Sampling
    choices: int = 1
    stream: bool = False
    echo: bool = False
    usage: bool = False
    context: TurnContext = TurnContext()
    notes: tuple[Note, ...] = ()


def decode(body: bytes, headers: Mapping[str, str], *, limits: Limits | None = None) -> Asked:
    """Decode `POST /v1/completions`. Header names are lower case."""
    fields = Fields(body, limits or Limits())
    model = fields.model()
    prompts = _prompts(fields.get("prompt"))
    if fields.get("suffix"):
        raise invalid("suffix", "text to fill in between is not offered; put both sides into the prompt as the model's "
                                "own fill-in-the-middle format wants them")  # fmt: skip
    choices = fields.count("n", 1) or 1
    most = _PROMPTS_OF_MOST_CHOICES * fields.limits.choices
    if len(prompts) * choices > most:
        raise invalid("n", f"{len(prompts)} prompts times {choices} answers; the limit is {most} in all")
    best = fields.count("best_of", 1)
    if best is not None and best > choices:
        fields.notes.append(Note("request.field_ignored", "best_of: every answer is returned, none is ranked away"))
    logprobs = fields.count("logprobs", 0, _MOST_LOGPROBS)
    echo = fields.boolean("echo")
    if echo and logprobs is not None:
        fields.notes.append(Note("logprobs.prompt_unscored", "log probabilities cover the answer, not the prompt"))
    fields.note_unknown(_HONOURED)
    return Asked(
        model=model,
        prompts=prompts,
        sampling=fields.sampling(max_tokens=fields.count("max_tokens", 1) or _DEFAULT_TOKENS, logprobs=logprobs),
        choices=choices,
        stream=fields.boolean("stream"),
        echo=echo,
        usage=fields.wants_usage(),
        context=turn_context(headers, limit=fields.limits.header_chars),
        notes=tuple(fields.notes),
    )


def _prompts(value: Any) -> tuple[str | tuple[int, ...], ...]:
    """A string, token ids, or a list of either."""
    if isinstance(value, str) or _is_ids(value):
        return (_prompt(value, "prompt"),)
    if isinstance(value, list) and value:
        return tuple(_prompt(entry, f"prompt.{index}") for index, entry in enumerate(value))
    raise invalid("prompt", "must be a string, a list of token ids, or a list of either with at least one entry")


def _prompt(value: Any, path: str) -> str | tuple[int, ...]:
    if isinstance(value, str):
        if not value:
            raise invalid(path, "must not be empty; a model needs something to go on from")
        return value
    if _is_ids(value):
        return tuple(value)
    raise invalid(path, "must be a string or a list of token ids")


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(entry) is int and entry >= 0 for entry in value)
