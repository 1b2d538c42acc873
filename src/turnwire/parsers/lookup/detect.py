"""Finds a model's dialect from its template, vocabulary and id, and says why.

Promise: the tables of the families decide, in an order that follows from them; where the evidence does not decide, the
answer is no dialect and the candidates, and where a template shows no calls at all, plain text with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import cache
from typing import Final

import msgspec

from turnwire.parsers.dialect import Dialect, Signature
from turnwire.parsers.dialects.plain import PLAIN
from turnwire.parsers.lookup.registry import dialects

__all__ = ["Detection", "detect", "signatures"]


class Detection(msgspec.Struct, frozen=True):
    """What was found."""

    dialect: Dialect | None
    """None where the evidence does not decide."""
    why: str
    candidates: tuple[str, ...] = ()
    """The names that fit."""
    warning: str = ""
    """What whoever serves the model should know."""


# Signatures are tried in this order of weights; of one weight, the one that asks for more text first.
_WEIGHTS: Final = ("own", "shared", "base", "thought")
_GLUED = re.compile(r"(?<=[a-z])-(?=[0-9])")
_SEPARATORS = re.compile(r"[_\s:]+|--+")


@cache
def signatures() -> tuple[tuple[Signature, Dialect], ...]:
    """Every signature with its family, in the order in which they are tried."""
    found = [(signature, dialect) for dialect in dialects() for signature in dialect.known_by]
    return tuple(sorted(found, key=_order))


def _order(entry: tuple[Signature, Dialect]) -> tuple[int, int, int, str]:
    signature, dialect = entry
    size = sum(map(len, signature.texts))
    return _WEIGHTS.index(signature.weight), -len(signature.texts), -size, dialect.name


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], int, Dialect], ...]:
    """The patterns of all ids, with their length and family."""
    found = []
    for dialect in dialects():
        for pattern in dialect.ids:
            spelled = _spelled(pattern)
            body = translate(spelled).removeprefix("(?s:").removesuffix(r")\Z")
            found.append((re.compile(rf"(?:^|(?<=[-/])){body}"), len(spelled), dialect))
    return tuple(found)


def _spelled(model_id: str) -> str:
    """An id as registries differ only in case and separators: `Llama-3.1`, `llama3.1` and `llama_3.1` are one."""
    return _GLUED.sub("", _SEPARATORS.sub("-", model_id.lower()))


def detect(model_id: str = "", template: str = "", special_tokens: Iterable[str] = ()) -> Detection:
    """The dialect that template text (or else the vocabulary) shows; the id tells apart families that write alike, and
    decides where they do not. `why` says if template and id disagree."""
    named = _by_id(model_id)
    if template:
        return _by_template(template, model_id, named)
    tokens = set(special_tokens)
    if tokens:
        own = _first("\n".join(sorted(tokens - _shared())))
        if own is not None:
            return _found(own[1], f"the vocabulary has {_quoted(own[0])}")
        candidates = tuple(d.name for d in dialects() if tokens.intersection(_openers(d)))
        if candidates and named is None:
            shared = " and ".join(sorted(tokens & _shared() & {opener for d in dialects() for opener in _openers(d)}))
            why = f"the vocabulary has {shared}, which several families use differently; give a template or a dialect"
            return Detection(None, why, candidates)
    if named is not None:
        return _found(named, f"the id {model_id!r} is known; there is no template to prove it")
    return Detection(None, "there is no template, and neither the id nor the vocabulary is known; name a dialect")


def _by_template(template: str, model_id: str, named: Dialect | None) -> Detection:
    found = _first(template)
    if found is not None and found[0].weight != "thought":
        signature, dialect = found
        why = f"the template writes {_quoted(signature)}"
        if named is None or named == dialect:
            return _found(dialect, why)
        if (signature.weight == "shared" and _alike(named, dialect)) or (signature.weight == "base" and _calls(named)):
            return _found(named, f"{why}, and the id {model_id!r} is known")
        return _found(dialect, f"{why}; by its id {model_id!r} one would expect {named.name}")
    if named is not None:
        return _found(named, f"the template shows no call syntax; the id {model_id!r} is known")
    if found is not None:
        return _found(found[1], "the template writes thoughts and shows no call syntax")
    why = "the template shows neither reasoning nor calls, and the id is not known"
    warning = f"{why}: everything is read as text. If this model calls tools, name its dialect."
    return Detection(PLAIN, why, (PLAIN.name,), warning)


def _first(text: str) -> tuple[Signature, Dialect] | None:
    for entry in signatures():
        signature = entry[0]
        if all(part in text for part in signature.texts) and not any(part in text for part in signature.never):
            return entry
    return None


def _by_id(model_id: str) -> Dialect | None:
    """The family whose pattern matches the earliest word of the id; of several, the longest pattern."""
    spelled = _spelled(model_id.rstrip("/"))
    found: list[tuple[int, int, Dialect]] = []
    for pattern, size, dialect in _patterns():
        match = pattern.search(spelled)
        if match is not None:
            found.append((_word(spelled, match.start()), -size, dialect))
    return min(found, key=lambda entry: entry[:2])[2] if found else None


def _word(spelled: str, at: int) -> int:
    """Where a match begins, as far as it counts: the name of a model comes before the owner's."""
    begin = spelled.rfind("/") + 1
    return at if at >= begin else len(spelled) + at


def _calls(dialect: Dialect) -> bool:
    return bool(dialect.calls) or dialect.router is not None


def _openers(dialect: Dialect) -> frozenset[str]:
    return frozenset(sign.text for syntax in dialect.calls for sign in syntax.signs if not sign.rescue)


def _alike(one: Dialect, other: Dialect) -> bool:
    """Whether two families write calls in one kind of syntax, with the same openers and closers."""
    return _outline(one) == _outline(other) and one.router == other.router


def _outline(dialect: Dialect) -> tuple[object, ...]:
    first = dialect.calls[:1]
    closers = frozenset(closer for syntax in first for closer in syntax.closers)
    return tuple(type(syntax) for syntax in first), _openers(dialect), closers


@cache
def _shared() -> frozenset[str]:
    """Markers that families with different calls or thoughts have in common: alone they prove nothing."""
    users: dict[str, set[tuple[object, ...]]] = {}
    for dialect in dialects():
        for opener in _openers(dialect):
            users.setdefault(opener, set()).add(dialect.calls)
        if dialect.reasoning is not None:
            for marker in (*dialect.reasoning.open, *dialect.reasoning.close):
                users.setdefault(marker, set()).add((dialect.name,))
    return frozenset(marker for marker, calls in users.items() if len(calls) > 1)


def _quoted(signature: Signature) -> str:
    return " and ".join(signature.texts)


def _found(dialect: Dialect, why: str) -> Detection:
    return Detection(dialect, why, (dialect.name,))
