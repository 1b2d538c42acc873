"""Secrets out of captures: each is replaced by a word of its own, everywhere by the same one.

Promise: what the table names is in no capture, neither as text nor as token ids; equal secrets get equal words, so that
a redacted conversation still makes sense. A file is checked again when it is read, with the same table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

import msgspec

from turnwire.capture.format import MASKED, CapturedTurn, EventStep, Step, TokenStep
from turnwire.turns import BlockDelta, Event, ToolCallClosed

__all__ = ["SECRETS", "SECRET_HEADERS", "Redactor", "is_secret_header", "secrets_in"]

_START = r"(?<![A-Za-z0-9_\-])"
SECRETS: Mapping[str, str] = {
    "key": _START + r"(?:sk-[A-Za-z0-9_\-]{20,}|tw-[A-Za-z0-9_\-]{43}(?![A-Za-z0-9_\-]))",
    "github": _START + r"(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{40,})",
    "gitlab": _START + r"glpat-[A-Za-z0-9_\-]{20,}",
    "aws": _START + r"(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])",
    "google": _START + r"AIza[0-9A-Za-z_\-]{35}",
    "slack": _START + r"xox[abeprs]-[A-Za-z0-9\-]{10,}",
    "hub": _START + r"hf_[A-Za-z0-9]{30,}",
    "npm": _START + r"npm_[A-Za-z0-9]{36}",
    "jwt": _START + r"eyJ[A-Za-z0-9_\-]{10,}\.eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}",
    "bearer": r"(?<=[Bb]earer )(?!REDACTED_)[A-Za-z0-9._~+/\-]{20,}=*",
    "private_key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----",
    "url_password": r"(?<=://)[^\s/:@\"\\]{1,64}:(?!REDACTED_)[^\s/:@\"\\]{1,256}(?=@)",
}
"""What is taken for a secret, by kind."""

SECRET_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "set-cookie"}
)
"""Headers whose value is a secret whatever it looks like."""
_SECRET_NAMES = re.compile(r"token|secret|password|credential|(?:^|-)auth|(?:api|access|subscription|functions)-?key")


def is_secret_header(name: str) -> bool:
    """Whether a header's value is taken for a secret, by its name."""
    return name in SECRET_HEADERS or _SECRET_NAMES.search(name) is not None


_SIGNS: Mapping[str, tuple[str, ...]] = {
    "key": ("sk-", "tw-"),
    "github": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "gitlab": ("glpat-",),
    "aws": ("AKIA", "ASIA"),
    "google": ("AIza",),
    "slack": ("xox",),
    "hub": ("hf_",),
    "npm": ("npm_",),
    "jwt": ("eyJ",),
    "bearer": ("earer ",),
    "private_key": ("PRIVATE KEY-----",),
    "url_password": ("://",),
}
"""What a text with such a secret holds: looking for these first costs next to nothing, and most texts have none."""
assert set(_SIGNS) == set(SECRETS)


@lru_cache(maxsize=256)
def _compiled(kinds: tuple[str, ...], extra: tuple[str, ...]) -> re.Pattern[str]:
    parts = [f"(?P<{kind}>{SECRETS[kind]})" for kind in kinds]
    return re.compile("|".join([*parts, *(f"(?P<own{number}>{one})" for number, one in enumerate(extra))]))


def _found(text: str, extra: tuple[str, ...] = ()) -> list[re.Match[str]]:
    """Every secret of a text, in order."""
    kinds = tuple(kind for kind, signs in _SIGNS.items() if any(sign in text for sign in signs))
    return list(_compiled(kinds, extra).finditer(text)) if kinds or extra else []


def secrets_in(turn: CapturedTurn) -> list[str]:
    """The kinds of secret that a captured turn still holds; empty for one that was redacted."""
    said = "".join(piece for step in turn.steps for piece in _pieces(step))
    made = msgspec.json.encode((turn.blocks, turn.expected, turn.notes, turn.summary, turn.session, turn.client))
    texts = (turn.request.body, said, turn.prompt.tail, made.decode(), *(text for _, text in turn.answer))
    found = {match.lastgroup or "" for text in texts for match in _found(text)}
    found |= {
        f"header {name}"
        for name, value in turn.request.headers.items()
        if is_secret_header(name) and not value.startswith("REDACTED_")
    }
    return sorted(found)


class Redactor:
    """Replaces secrets. `extra` are further patterns; `salt` decides the words, so that nobody can try out guesses."""

    def __init__(self, extra: Sequence[str] = (), *, salt: bytes | None = None) -> None:
        self._extra = tuple(extra)
        self._salt = os.urandom(16) if salt is None else salt

    def word(self, kind: str, secret: str) -> str:
        """What stands for a secret."""
        digest = blake2b(secret.encode(), key=self._salt, digest_size=4).hexdigest()
        return f"REDACTED_{kind}_{digest}"

    def text(self, text: str) -> tuple[str, int]:
        """The text without secrets, and how many there were."""
        matches = _found(text, self._extra)
        made, at = "", 0
        for match in matches:
            made += text[at : match.start()] + self.word(match.lastgroup or "own", match.group())
            at = match.end()
        return made + text[at:] if matches else text, len(matches)

    def turn(
        self,
        turn: CapturedTurn,
        decode: Callable[[Sequence[int]], str],
        spell: Callable[[Sequence[int]], Iterable[str]],
    ) -> CapturedTurn:
        """The turn without secrets. `decode` gives the text of ids, `spell` that of each id, so that those that spell a
        secret can be masked; it is only asked where there is one."""
        headers = {
            name: self.word("header", value) if is_secret_header(name) else self.text(value)[0]
            for name, value in turn.request.headers.items()
        }
        body, in_body = self.text(turn.request.body)
        steps, in_output = self._steps(turn.steps)
        answer, in_answer = self._answer(turn.answer, cut=bool(in_output))
        prompt = turn.prompt
        # A prompt may hold what its request does not show: thoughts that clients carry sealed.
        if prompt.ids and _found(decode(prompt.ids), self._extra):
            tail, _ = self.text(prompt.tail)
            prompt = msgspec.structs.replace(prompt, ids=self._masked(prompt.ids, spell), tail=tail)
        output_ids = self._masked(turn.output_ids, spell) if in_output else turn.output_ids
        return msgspec.structs.replace(
            turn,
            request=msgspec.structs.replace(turn.request, headers=headers, body=body),
            prompt=prompt,
            steps=steps,
            answer=answer,
            output_ids=output_ids,
            redacted=in_body + in_output + in_answer,
        )

    def _answer(self, answer: Sequence[tuple[float, str]], *, cut: bool) -> tuple[tuple[tuple[float, str], ...], int]:
        """What was sent. A secret in the output lies across frames, so then only their times stay."""
        if cut:
            return tuple((at, "") for at, _ in answer), 0
        if not _found("".join(text for _, text in answer), self._extra):
            return tuple(answer), 0
        clean = [(at, *self.text(text)) for at, text in answer]
        return tuple((at, text) for at, text, _ in clean), sum(count for _, _, count in clean)

    def _steps(self, steps: tuple[Step, ...]) -> tuple[tuple[Step, ...], int]:
        """The engine's batches: a secret is looked for in the whole output, and its word goes where it began."""
        pieces = [piece for step in steps for piece in _pieces(step)]
        clean, count = self._joined(pieces)
        if not count:
            return steps, 0
        rest = iter(clean)
        return tuple(self._step(step, [next(rest) for _ in _pieces(step)]) for step in steps), count

    def _joined(self, pieces: Sequence[str]) -> tuple[list[str | None], int]:
        """Pieces of one text without its secrets; None for a piece that held nothing of one."""
        spans = [(*match.span(), match) for match in _found("".join(pieces), self._extra)]
        made: list[str | None] = []
        start = 0
        for piece in pieces:
            end, at, kept, touched = start + len(piece), start, "", False
            for first, last, match in spans:
                if last <= start or first >= end:
                    continue
                touched = True
                kept += piece[at - start : max(first - start, 0)]
                if first >= start:
                    kept += self.word(match.lastgroup or "own", match.group())
                at = min(last, end)
            made.append(kept + piece[at - start :] if touched else None)
            start = end
        return made, len(spans)

    def _step(self, step: Step, clean: Sequence[str | None]) -> Step:
        if isinstance(step, TokenStep):
            text = clean[0]
            return step if text is None else TokenStep(step.at, text, tuple(MASKED for _ in step.ids))
        if not isinstance(step, EventStep):
            return step
        rest = iter(clean)
        events: list[Event] = []
        for event in step.events:
            if isinstance(event, BlockDelta) and (text := next(rest)) is not None:
                event = msgspec.structs.replace(event, text=text, raw="")
            elif isinstance(event, ToolCallClosed):
                event = msgspec.structs.replace(event, arguments=self.text(event.arguments)[0], raw="")
            events.append(event)
        return EventStep(step.at, tuple(events))

    def _masked(self, ids: Sequence[int], spell: Callable[[Sequence[int]], Iterable[str]]) -> list[int]:
        pieces = list(spell(ids))
        spans = [match.span() for match in _found("".join(pieces), self._extra)]
        masked, place, at = list(ids), 0, 0
        for number, piece in enumerate(pieces):
            end = place + len(piece)
            while at < len(spans) and spans[at][1] <= place:
                at += 1
            if at < len(spans) and spans[at][0] < end and spans[at][1] > place:
                masked[number] = MASKED
            place = end
        return masked


def _pieces(step: Step) -> list[str]:
    """What a step says, in the pieces it came in."""
    if isinstance(step, TokenStep):
        return [step.text]
    if isinstance(step, EventStep):
        return [event.text for event in step.events if isinstance(event, BlockDelta)]
    return []
