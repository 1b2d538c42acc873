"""Captured sessions as training samples: the very tokens that the engine read and wrote.

Promise: every captured turn is in exactly one sample, and the sample's ids up to the turn's end are its prompt and its
output, id for id. The loss mask covers what the model sampled, once, and nothing else. A turn whose prompt goes on from
all of another's continues that sample; any other begins a branch that says where it parted and why.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import msgspec

from turnwire.capture.format import MASKED, CapturedTurn, TokenStep
from turnwire.shared_prefix import shared_prefix

__all__ = ["FORMAT", "Branch", "Sample", "SampleTurn", "samples"]

FORMAT = "turnwire.samples.v1"


class SampleTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a sample: the model's output is `ids[start:end]`. `finish` is how it ended; with `stop` or
    `tool_calls` the model wrote its end token next, which engines do not report."""

    turn_id: str
    start: int
    end: int
    finish: str


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """Where a sample parted from another: they share the first `shared` ids. `cause` is continuity's word for a prefix
    that broke, else `subagent`, or `parallel` for one that began beside the other."""

    sample: str
    shared: int
    cause: str


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file. `logprobs` has a value where the engine gave one, and is null where it gave none."""

    id: str
    ids: list[int]
    loss_mask: list[int]
    turns: list[SampleTurn]
    model: str
    tokenizer: str
    session: str | None = None
    agent: str | None = None
    logprobs: list[float | None] | None = None
    branch: Branch | None = None
    format: str = FORMAT


class _Growing:
    """A sample while turns are added."""

    def __init__(self, turn: CapturedTurn, branch: Branch | None) -> None:
        self.first = turn
        self.branch = branch
        self.ids: array[int] = array("q")
        self.mask: list[int] = []
        self.scores: list[float | None] = []
        self.turns: list[SampleTurn] = []

    def add(self, turn: CapturedTurn) -> None:
        """Go on with a turn whose prompt begins with all that is here."""
        read = turn.prompt.ids[len(self.ids) :]
        self.ids.extend(read)
        self.mask += [0] * len(read)
        self.scores += [None] * len(read)
        start = len(self.ids)
        sampled, scores = _sampled(turn)
        self.ids.extend(turn.output_ids)
        self.mask += sampled
        self.scores += scores
        self.turns.append(SampleTurn(turn_id=turn.turn_id, start=start, end=len(self.ids), finish=turn.finish))

    def sample(self, tokenizer: str) -> Sample:
        return Sample(
            id=self.first.turn_id,
            ids=list(self.ids),
            loss_mask=self.mask,
            turns=self.turns,
            model=self.first.model,
            tokenizer=tokenizer,
            session=self.first.session,
            agent=self.first.agent,
            logprobs=self.scores if any(score is not None for score in self.scores) else None,
            branch=self.branch,
        )


def _sampled(turn: CapturedTurn) -> tuple[list[int], list[float | None]]:
    """For each output id, whether the model sampled it (the gateway may have written some itself: a forced opening, the
    end of a thought at its budget), and its log probability."""
    steps = [step for step in turn.steps if isinstance(step, TokenStep)]
    ids = [token for step in steps for token in step.ids]
    values: list[float | None] = []
    for step in steps:
        whole = len(step.logprobs) == len(step.ids)
        values += [score for _, score, _ in step.logprobs] if whole else [None] * len(step.ids)
    mask: list[int] = []
    scores: list[float | None] = []
    place = 0
    for token in turn.output_ids:
        own = place < len(ids) and ids[place] == token
        mask.append(int(own))
        scores.append(values[place] if own else None)
        place += own
    return mask, scores


def samples(turns: Iterable[CapturedTurn], tokenizers: dict[str, str]) -> Iterator[Sample]:
    """The samples of captured turns, which come oldest first; `tokenizers` are the models' fingerprints. Turns without
    ids of their own, and turns in which a secret was masked, are left out."""
    growing: dict[tuple[str, str, str | None], list[_Growing]] = {}
    for turn in turns:
        if not turn.output_ids or not turn.prompt.ids or MASKED in turn.prompt.ids or MASKED in turn.output_ids:
            continue
        lines = growing.setdefault((turn.tenant, turn.model, turn.session), [])
        prompt = array("q", turn.prompt.ids)
        best, most = None, 0
        for line in lines:
            shared = shared_prefix(line.ids, prompt)
            if shared == len(line.ids):
                best, most = line, shared
                break
            if shared > most:
                best, most = line, shared
        if best is None or most < len(best.ids):
            branch = None if best is None else Branch(sample=best.first.turn_id, shared=most, cause=_cause(turn, best))
            best = _Growing(turn, branch)
            lines.append(best)
        best.add(turn)
    for lines in growing.values():
        for line in lines:
            yield line.sample(tokenizers[line.first.model])


def _cause(turn: CapturedTurn, other: _Growing) -> str:
    if turn.agent != other.first.agent or turn.turn_class == "subagent":
        return "subagent"
    return str(turn.verdict.get("cause") or "parallel")
