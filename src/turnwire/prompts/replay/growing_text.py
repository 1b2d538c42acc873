"""Rendered text that grows from turn to turn: what it shares with the last one is neither labelled nor tokenized again.

Promise: `grown` gives the labels and the ids of the whole text, whatever it grew from. Of a text that was edited, what
reads as it did before is not tokenized again from where it can be cut: messages with a control token in front of them.
Memory is bounded; several threads may share one cache.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock

import msgspec

from turnwire.prompts.prompt import Section, Tokenizer
from turnwire.prompts.replay.sections import FoundMessage, Labelling, label_messages, label_tools, labels_of
from turnwire.prompts.replay.tokenized_text import Label, LiteralSpans, sections_of, tokenized
from turnwire.shared_prefix import shared_prefix
from turnwire.token_ids import TokenIds
from turnwire.turns import Message, Note, Tool

_MOST_BEGINNINGS = 1024
_MOST_TRIES = 4  # messages behind an edit that are looked for until the text goes on as it did
_REACH = 80  # characters before a message in which a place is looked for where the text can be cut
_TOKEN_BYTES = 12  # four packed, and what its number takes in JSON with a comma

__all__ = ["GrownText", "Rendering", "RenderingCache", "common_items", "grown"]


class GrownText(msgspec.Struct, frozen=True, gc=False):
    """A text with everything that was found in it. `limit` is where its generation header begins; `digests` name the
    messages it shows; the tools' names are found before `tools_end`; `starts` count the tokens before each label; the
    spans `literal` are text whatever they spell."""

    text: str
    limit: int
    digests: Sequence[bytes]
    found: list[FoundMessage]
    tools: list[Label]
    tools_end: int
    missed: list[tuple[int, str]]
    labels: list[Label]
    starts: list[int]
    ids: TokenIds
    sections: tuple[Section, ...]
    literal: Sequence[tuple[int, int]] = ()

    def kept_before(self, tokenizer: Tokenizer, index: int) -> int:
        """The message from which on a text is tokenized that is the same up to the message at `index`, as far as this
        text tells."""
        spans = LiteralSpans(self.literal)
        if index == len(self.digests) and spans.allow_cut(tokenizer, self.text, self.limit):
            return index
        for place in range(self._place(index) - 1, -1, -1):
            found = self.found[place]
            if spans.allow_cut(tokenizer, self.text, found.start):
                return found.index
        return 0

    def stands_from(self, tokenizer: Tokenizer, index: int) -> int:
        """The message from which on a text is not tokenized again that is the same from the message at `index` on, as
        far as this text tells."""
        spans = LiteralSpans(self.literal)
        if self.labels[-1].start == self.limit and spans.allow_cut(tokenizer, self.text, self.limit):
            for place in range(self._place(index), len(self.found)):
                found = self.found[place]
                if spans.allow_cut(tokenizer, self.text, found.start):
                    return found.index
        return len(self.digests)

    def _place(self, index: int) -> int:
        """How many of the messages before `index` were found."""
        return bisect_left(self.found, index, key=lambda found: found.index)

    @property
    def size(self) -> int:
        """Roughly its bytes."""
        tokens = len(self.ids.packed)
        return 2 * len(self.text) + _TOKEN_BYTES * tokens + 200 * len(self.labels) + 120 * len(self.literal) + 500


class Rendering(msgspec.Struct, frozen=True, gc=False):
    """A grown text, the key of all it was rendered from, its generation header (None where it was not looked for) and
    the notes of its rendering. `window` is where the first question begins when only the last exchange is rendered;
    None until such a rendering was compared with the whole text."""

    key: bytes
    text: GrownText
    tail: str | None
    notes: tuple[Note, ...]
    window: int | None = None


class RenderingCache:
    """The renderings used last, one for each conversation's opening, up to a number of bytes in all. Of those with the
    same beginning, which are conversations of one agent, the last can be found by it."""

    def __init__(self, max_bytes: int = 32 * 1024 * 1024) -> None:
        self._max = max_bytes
        self._held: OrderedDict[bytes, Rendering] = OrderedDict()
        self._last: dict[bytes, bytes] = {}
        self._bytes = 0
        self._lock = Lock()

    def beside(self, beginning: bytes) -> Rendering | None:
        """The last rendering with this beginning."""
        opening = self._last.get(beginning)
        return self._held.get(opening) if opening is not None else None

    def get(self, opening: bytes) -> Rendering | None:
        with self._lock:
            found = self._held.get(opening)
            if found is not None:
                self._held.move_to_end(opening)
            return found

    def put(self, opening: bytes, rendering: Rendering, beginning: bytes) -> None:
        with self._lock:
            if beginning not in self._last and len(self._last) >= _MOST_BEGINNINGS:
                self._last.clear()
            self._last[beginning] = opening
            before = self._held.pop(opening, None)
            self._bytes += rendering.text.size - (before.text.size if before is not None else 0)
            self._held[opening] = rendering
            while self._bytes > self._max:
                self._bytes -= self._held.popitem(last=False)[1].text.size

    def __len__(self) -> int:
        return len(self._held)


def grown(
    base: GrownText | None,
    tokenizer: Tokenizer,
    text: str,
    tail: str | None,
    messages: Sequence[Message],
    digests: Sequence[bytes],
    *,
    end: int,
    tools: Sequence[Tool] = (),
    start: int = 0,
    literal: Sequence[tuple[int, int]] = (),
    common: int = 0,
    beside: GrownText | None = None,
) -> GrownText:
    """`text`, which shows `messages[start:end]`, perhaps `tools`, and ends with `tail`. `base` shows the same tools,
    and at least its first `common` characters are those of `text`; `beside` is another text that may begin like this
    one."""
    limit = len(text) - len(tail or "")
    spans, theirs = LiteralSpans(literal), LiteralSpans(base.literal if base is not None else ())
    places = _Places(tokenizer, text, spans)
    kept = 0
    if base is not None and start == 0:
        common = min(common if common >= base.limit else shared_prefix(base.text, text), base.limit, limit)
        same = common_items(base.digests, digests[:end])
        kept = _kept(base, tokenizer, text, limit, common, same, spans, theirs)
    if base is None or kept == 0:
        labelling = label_messages(text, limit, messages, range(start, end))
        offered, unseen, tools_end = label_tools(text, limit, tools)
        found = places.cuttable(labelling.found, 0, offered)
        missed = [*((-1, name) for name in unseen), *labelling.missed]
        labels = labels_of(found, offered, limit, tail=bool(tail), start=start, end=end)
        other = base if base is not None else beside
        same = _same_labels(other, tokenizer, text, labels, spans) if other is not None and start == 0 else 0
        at, before = labels[same].start, other.starts[same] if other is not None else 0
        if base is not None and start == 0:
            ids, starts = _tokenized_around(base, tokenizer, text, labels[same:], spans, theirs, at, before)
        else:
            ids, starts = tokenized(tokenizer, text, labels[same:], literal, at=at, before=before)
        if other is not None and same:
            starts, whole = other.starts[:same] + starts, other.ids.grown(before, ids)
        else:
            whole = TokenIds(ids)
        sections = sections_of(labels, starts, len(whole))
        return GrownText(
            text, limit, digests[:end], found, offered, tools_end, missed, labels, starts, whole, sections, literal
        )
    last = base.found[kept - 1]
    labelling = _labelled(base, kept, places, theirs, limit, messages, digests, end)
    found = base.found[:kept] + labelling.found
    missed = [miss for miss in base.missed if miss[0] <= last.index] + labelling.missed
    place = next(at for at in range(len(base.labels) - 1, -1, -1) if base.labels[at].start == last.start)
    first = base.starts[place]
    # The labels before that of the last message kept are those of the text it grew from, and so are their sections.
    fresh = labels_of(found[kept - 1 :], (), limit, tail=bool(tail), start=start, end=end, begins=place == 0)
    if common == base.limit and _goes_on(base, tokenizer, text, fresh[1:], spans, theirs):
        before, header = base.starts[-1], _header_again(base, tokenizer, text, limit, spans, theirs)
        stop = limit if header else len(text)
        ids, starts = tokenized(tokenizer, text, fresh[1:], literal, at=base.limit, end=stop, before=before)
        ids, starts = ids + header, [first, *starts]
    else:
        before = first
        ids, starts = _tokenized_around(base, tokenizer, text, fresh, spans, theirs, last.start, before)
    labels, starts = base.labels[:place] + fresh, base.starts[:place] + starts
    whole = base.ids.grown(before, ids)
    same = len(base.sections)
    while same and base.sections[same - 1].end > first:
        same -= 1
    sections = base.sections[:same] + sections_of(fresh, starts[place:], len(whole))
    return GrownText(
        text, limit, digests[:end], found, base.tools, base.tools_end, missed, labels, starts, whole, sections, literal
    )


class _Places:
    """Where a text can be cut, `spans` of which stay text."""

    def __init__(self, tokenizer: Tokenizer, text: str, spans: LiteralSpans) -> None:
        self._tokenizer = tokenizer
        self.text = text
        self.spans = spans

    def allow_cut(self, at: int) -> bool:
        return self.spans.allow_cut(self._tokenizer, self.text, at)

    def cuttable(self, found: Iterable[FoundMessage], floor: int, tools: Sequence[Label] = ()) -> list[FoundMessage]:
        """Messages in order, of which the first begins at `floor` or later. Where the text cannot be cut at a label,
        the label is the nearest control token before it that is none of an earlier message or tool."""
        made: list[FoundMessage] = []
        named = [tool.start for tool in tools]
        for each in found:
            if not self.allow_cut(each.start):
                before = bisect_left(named, each.start + 1)
                low = max(floor, named[before - 1] + 1) if before else floor
                cut = self._before(low, each.start)
                each = each if cut is None else msgspec.structs.replace(each, start=cut)
            made.append(each)
            floor = each.at + 1
        return made

    def _before(self, low: int, high: int) -> int | None:
        """The last place from `low` on where the text can be cut at a token that ends before `high`."""
        for at in range(high - 1, max(low, high - _REACH) - 1, -1):
            if self.allow_cut(at) and self._tokenizer.may_cut(self.text[at:high], 0):
                return at
        return None


def _same_labels(
    other: GrownText, tokenizer: Tokenizer, text: str, labels: Sequence[Label], spans: LiteralSpans
) -> int:
    """How many leading labels two texts share, where all before the next label is the same in both and can be cut from
    what follows."""
    common, theirs = shared_prefix(other.text, text), LiteralSpans(other.literal)
    for same in range(common_items(other.labels, labels) - 1, 0, -1):
        at = labels[same].start
        if at <= common and spans.allow_cut(tokenizer, text, at) and theirs.allow_cut(tokenizer, other.text, at):
            return same if spans.within(0, at) == theirs.within(0, at) else 0
    return 0


def _kept(
    base: GrownText,
    tokenizer: Tokenizer,
    text: str,
    limit: int,
    common: int,
    same: int,
    spans: LiteralSpans,
    theirs: LiteralSpans,
) -> int:
    """How many found messages of `base` are found alike in `text`, and the last of them at a place where it can be
    cut. The texts share `common` characters and show `same` messages."""
    kept = len(base.found)
    while kept:
        last = base.found[kept - 1]
        if last.end <= common and last.index < same and spans.allow_cut(tokenizer, text, last.start):
            break
        kept -= 1
    if not kept:
        return 0
    last = base.found[kept - 1]
    if base.tools_end > last.start or spans.within(0, last.at) != theirs.within(0, last.at):
        return 0
    # What was looked for in vain must not show in what is new, or a look at the whole text would have found it.
    for index, needle in base.missed:
        if index <= last.index and text.find(needle, max(0, last.start - len(needle)), limit) >= 0:
            return 0
    return kept


def _goes_on(
    base: GrownText,
    tokenizer: Tokenizer,
    text: str,
    fresh: Sequence[Label],
    spans: LiteralSpans,
    theirs: LiteralSpans,
) -> bool:
    """Whether all that is new in `text`, which begins like `base` up to its generation header, begins there, and both
    can be cut there."""
    at = base.limit
    return (
        bool(fresh)
        and fresh[0].start >= at == base.labels[-1].start
        and _counts_on(tokenizer, text, at, fresh[0])
        and spans.allow_cut(tokenizer, text, at)
        and theirs.allow_cut(tokenizer, base.text, at)
        and spans.within(0, at) == theirs.within(0, at)
    )


def _labelled(
    base: GrownText,
    kept: int,
    places: _Places,
    theirs: LiteralSpans,
    limit: int,
    messages: Sequence[Message],
    digests: Sequence[bytes],
    end: int,
) -> Labelling:
    """The messages behind the last one that was kept. Once the text goes on as that of `base` does, what was found in
    that is found here, as far away as the two have moved apart."""
    text, spans = places.text, places.spans
    last, known = base.found[kept - 1], {found.index: at for at, found in enumerate(base.found[kept:], kept)}
    first, cursor, whole = last.index + 1, last.at + 1, len(base.digests)
    # What was looked for in vain could be found in what is new.
    tries = _MOST_TRIES if all(index < first for index, _ in base.missed) and whole <= end else 0
    found: list[FoundMessage] = []
    missed: list[tuple[int, str]] = []
    for index in range(first, min(first + tries, whole)):
        one = label_messages(text, limit, messages, (index,), cursor)
        found += places.cuttable(one.found, cursor)
        missed += one.missed
        first = index + 1
        if not one.found:
            continue
        cursor = one.found[0].at + 1
        place = known.get(index)
        if place is None or tuple(base.digests[index:]) != tuple(digests[index:whole]):
            continue
        at, here = base.found[place].at, one.found[0].at
        stop = base.limit + here - at
        alike = stop <= limit and text[here:stop] == base.text[at : base.limit]
        if alike and spans.within(here, stop) == theirs.within(at, base.limit):
            moved = [_moved(each, here - at) for each in base.found[place + 1 :]]
            found += moved
            first, cursor = whole, (moved[-1].at if moved else here) + 1
            break
    rest = label_messages(text, limit, messages, range(first, end), cursor)
    return Labelling(found + places.cuttable(rest.found, cursor), missed + rest.missed)


def _moved(found: FoundMessage, by: int) -> FoundMessage:
    return FoundMessage(found.kind, found.index, found.start + by, found.at + by, found.end + by)


def _tokenized_around(
    base: GrownText,
    tokenizer: Tokenizer,
    text: str,
    labels: Sequence[Label],
    spans: LiteralSpans,
    theirs: LiteralSpans,
    at: int,
    before: int,
) -> tuple[list[int], list[int]]:
    """What `tokenized` gives for the text from `at` on, where `before` tokens precede it. What stands behind an edit
    as it stood in `base` has the ids that it has there."""
    literal = spans.spans
    low, high, move = _standing(base, text, labels)
    stop = base.limit + move

    def cuts(place: int) -> bool:
        there = theirs.allow_cut(tokenizer, base.text, place - move)
        return there and spans.allow_cut(tokenizer, text, place)

    while low < high and not cuts(labels[low].start):
        low += 1
    if low == high:
        return tokenized(tokenizer, text, labels, literal, at=at, before=before)
    start = labels[low].start
    # From a label that is no cut, to where the next cut is, counts may be off by a token: the same one here and there.
    counted = labels[high].start == stop or cuts(labels[high - 1].start)
    counted = counted and _counts_on(tokenizer, text, stop, labels[high])
    alike = spans.within(start, stop) == theirs.within(start - move, base.limit)
    if not (counted and alike and cuts(stop)):
        return tokenized(tokenizer, text, labels, literal, at=at, before=before)
    known = len(base.labels) - 1 - (high - low)
    first, last = base.starts[known], base.starts[-1]
    ids, starts = tokenized(tokenizer, text, labels[:low], literal, at=at, end=start, before=before)
    by = before + len(ids) - first
    ids += base.ids[first:last]
    more, rest = tokenized(tokenizer, text, labels[high:], literal, at=stop, before=before + len(ids))
    return ids + more, [*starts, *[count + by for count in base.starts[known:-1]], *rest]


def _standing(base: GrownText, text: str, labels: Sequence[Label]) -> tuple[int, int, int]:
    """From which of the labels to which the text is that of `base` up to its generation header, and how far away."""
    known = base.labels
    if len(known) < 2 or known[-1].start != base.limit:
        return 0, 0, 0
    last = known[-2]
    high = next((at for at, label in enumerate(labels, 1) if (label.kind, label.index) == (last.kind, last.index)), 0)
    move = labels[high - 1].start - last.start
    end = base.limit + move
    if not 0 < high < len(labels) or labels[high].start < end:
        return 0, 0, 0
    low, same = high, len(known) - 1
    while low and same:
        here, there = labels[low - 1], known[same - 1]
        if (here.kind, here.index, here.start) != (there.kind, there.index, there.start + move):
            break
        if text[here.start : end] != base.text[there.start : end - move]:
            break
        low, same, end = low - 1, same - 1, here.start
    return low, high, move


def _counts_on(tokenizer: Tokenizer, text: str, cut: int, label: Label) -> bool:
    """Whether the tokens before a label can be counted from the cut before it. Where it starts inside of the token that
    is cut there, what precedes it is no token, and joins the text before."""
    return label.start == cut or tokenizer.may_cut(text[cut : label.start], 0)


def _header_again(
    base: GrownText, tokenizer: Tokenizer, text: str, limit: int, spans: LiteralSpans, theirs: LiteralSpans
) -> list[int]:
    """The ids of the generation header of `base`, which can be cut from what precedes it, if `text` ends with the same
    and can be cut there too."""
    alike = (
        text[limit:] == base.text[base.limit :]
        and spans.allow_cut(tokenizer, text, limit)
        and not spans.within(limit, len(text))
        and not theirs.within(base.limit, len(base.text))
    )
    return base.ids[base.starts[-1] :] if alike else []


def common_items(one: Sequence[object], other: Sequence[object]) -> int:
    """How many leading items two lists share."""
    size = min(len(one), len(other))
    if one[:size] == other[:size]:
        return size
    return next(at for at in range(size) if one[at] != other[at])
