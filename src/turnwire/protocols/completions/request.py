"""A Completions request: prompts as text or token ids, and how to go on from them.

Promise: every field is honoured, noted or refused with its path; nothing is put before or after a prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.protocols.chat.request import wants_usage
from turnwire.protocols.context import turn_context
from turnwire.protocols.fields.body import invalid
from turnwire.protocols.fields.extensions import Extensions, read_extensions
from turnwire.protocols.fields.reader import Fields
from turnwire.protocols.fields.sampling import read_logit_bias, read_sampling
from turnwire.protocols.fields.table import COMPLETIONS
from turnwire.protocols.limits import Limits
from turnwire.turns import Note, Sampling, TurnContext

__all__ = ["Asked", "decode", "texts_or_ids"]

_DEFAULT_TOKENS = 16
_PROMPTS_OF_MOST_CHOICES = 4
_MOST_LOGPROBS = 20


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. Each prompt is text or token ids and gets `choices` answers; `echo` puts its text before each
    of them. `usage`: a stream ends with a usage chunk; `extensions` is what `nvext` asks for."""

    model: str
    prompts: tuple[str | tuple[int, ...], ...]
    sampling: Sampling
    choices: int = 1
    stream: bool = False
    echo: bool = False
    usage: bool = False
    context: TurnContext = TurnContext()
    extensions: Extensions = Extensions()
    notes: tuple[Note, ...] = ()


def decode(body: bytes, headers: Mapping[str, str], *, limits: Limits | None = None) -> Asked:
    """Decode `POST /v1/completions`. Header names are lower case."""
    fields = Fields(body, COMPLETIONS, limits or Limits())
    model = fields.model()
    prompts = texts_or_ids(fields.value("prompt"), "prompt")
    choices = fields.whole("n", 1) or 1
    most = _PROMPTS_OF_MOST_CHOICES * fields.limits.choices
    if len(prompts) * choices > most:
        raise invalid("n", f"{len(prompts)} prompts times {choices} answers; the limit is {most} in all")
    logprobs = fields.whole("logprobs", 0, _MOST_LOGPROBS)
    echo = fields.flag("echo")
    if echo and logprobs is not None:
        fields.notes.add("logprobs.prompt_unscored", "log probabilities cover the answer, not the prompt")
    stream = fields.flag("stream")
    sampling = read_sampling(
        fields,
        max_tokens=fields.whole("max_tokens", 1) or _DEFAULT_TOKENS,
        stop=fields.stops("stop"),
        logprobs=logprobs,
        logit_bias=read_logit_bias(fields),
    )
    usage = wants_usage(fields, stream)
    extensions = read_extensions(fields)
    return Asked(
        model=model,
        prompts=prompts,
        sampling=extensions.sampling(sampling),
        choices=choices,
        stream=stream,
        echo=echo,
        usage=usage,
        context=turn_context(
            headers, hints=extensions.hints, cache_salt=extensions.cache_salt, limit=fields.limits.header_chars
        ),
        extensions=extensions,
        notes=fields.finish(),
    )


def texts_or_ids(value: Any, path: str) -> tuple[str | tuple[int, ...], ...]:
    """A string, token ids, or a list of either."""
    if isinstance(value, str) or _is_ids(value):
        return (_text_or_ids(value, path),)
    if isinstance(value, list) and value:
        return tuple(_text_or_ids(entry, f"{path}.{index}") for index, entry in enumerate(value))
    raise invalid(path, "must be a string, a list of token ids, or a list of either with at least one entry")


def _text_or_ids(value: Any, path: str) -> str | tuple[int, ...]:
    if isinstance(value, str):
        if not value:
            raise invalid(path, "must not be empty; a model needs something to go on from")
        return value
    if _is_ids(value):
        return tuple(value)
    raise invalid(path, "must be a string or a list of token ids")


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(entry) is int and entry >= 0 for entry in value)
