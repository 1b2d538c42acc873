"""Finds the exact turn that an assistant message shows: in the seals it carries, or in the turn store.

Promise: what is recalled is what the model wrote, token for token, and the client has not changed it; from the store,
only after the very history that it was said in. Where that cannot be shown nothing is recalled, and notes say why.
Never raises on what a client sent.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate
from threading import Lock

from turnwire.prompts.notes import noted
from turnwire.prompts.prompt import HistoryKey, RecalledTurn, Tokenizer
from turnwire.prompts.recall.seals import Sealer, Segment, Unopened
from turnwire.prompts.recall.store import KnownTurns, MemoryTurnStore, StoredTurn, call_key, said_key
from turnwire.prompts.recall.witness import content_mark, edits, thought_end, thoughts_as_text, thoughts_mark
from turnwire.prompts.tokenizers.detokenizer import ByteDetokenizer
from turnwire.turns import Message, Note, ReasoningBlock, ToolCallBlock

__all__ = ["RecallCache", "TurnRecall", "ids_within", "stored_turn", "turn_keys", "turn_space"]

_MOST_SEALS = 4096
_STRIDES = (1024, 128, 16, 4, 1)


def turn_space(tenant: str, model: str) -> str:
    """The store's space for a tenant and a model: ids mean nothing to another model."""
    return f"{len(tenant)}:{tenant}:{model}"


def turn_keys(history: HistoryKey, *, call_ids: Sequence[str], said: bytes, session: str = "") -> list[str]:
    """The keys a finished turn is stored under, each with the digest of what precedes it: its calls, or what was said
    where it made none. `said` is the mark of the turn's text (`Witness.said`)."""
    if call_ids:
        return [call_key(digest, call_id) for call_id in call_ids for digest in history.loose]
    keys = [said_key(history.strict, said)]
    return [*keys, said_key(history.strict, said, session)] if session else keys


class RecallCache:
    """Messages whose turn was found, so that a growing conversation is not unsealed and compared again each time.
    Bounded by the tokens it holds; may be shared by threads."""

    def __init__(self, *, max_tokens: int = 2_000_000) -> None:
        self._max_tokens = max_tokens
        self._found: OrderedDict[tuple[str, bytes, Message], RecalledTurn] = OrderedDict()
        self._tokens = 0
        self._lock = Lock()

    def get(self, key: tuple[str, bytes, Message]) -> RecalledTurn | None:
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def put(self, key: tuple[str, bytes, Message], turn: RecalledTurn) -> None:
        with self._lock:
            if key in self._found:
                return
            self._found[key] = turn
            self._tokens += len(turn.ids) + 64
            while self._tokens > self._max_tokens:
                _, dropped = self._found.popitem(last=False)
                self._tokens -= len(dropped.ids) + 64


class TurnRecall:
    """The recall of one request: bound to its tenant, model and session."""

    def __init__(
        self,
        *,
        tokenizer: Tokenizer,
        tenant: str,
        model: str,
        session: str = "",
        sealer: Sealer | None = None,
        store: KnownTurns | None = None,
        cache: RecallCache | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._tenant = tenant
        self._model = model
        self._session = session
        self._space = turn_space(tenant, model)
        self._sealer = sealer
        self._store = store
        self._cache = cache

    @property
    def scope(self) -> str:
        """What the answers depend on besides message and history."""
        return f"{len(self._session)}:{self._session}:{self._space}"

    def recall(
        self, message: Message, history: HistoryKey | None = None
    ) -> tuple[RecalledTurn | None, tuple[Note, ...]]:
        """The turn that `message` shows, which holds one whole assistant turn and follows `history`."""
        calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
        # What a message without calls may be found by is stricter, and what is known of it must be so too.
        digest = b"" if history is None else history.loose[0] if calls else history.strict
        key = (self._space if calls else self.scope, digest, message) if calls or self._tells(message) else None
        known = self._cache.get(key) if self._cache and key is not None else None
        if known is not None:
            return known, ()
        notes: list[Note] = []
        found = self._unsealed(message, notes)
        if found is not None and found.complete:
            return self._kept(key, found), tuple(notes)
        if any(note.code.startswith("replay.edited.") for note in notes):
            return None, tuple(notes)
        stored = None if history is None else self._stored(message, calls, history, notes)
        if stored is not None:
            return self._kept(key, stored), tuple(notes)
        if found is not None:
            notes.append(noted("replay.partial"))
        elif not notes:
            notes.append(noted("replay.missing"))
        return found, tuple(notes)

    def written_elsewhere(self, message: Message, history: HistoryKey) -> bool:
        """Whether another process wrote the turn: `message` carries its seals, and the store, which is this process's
        own, does not know it. That process read what was said before it from the client alone."""
        sealed = any(isinstance(block, ReasoningBlock) and block.seal for block in message.blocks)
        if not sealed or not isinstance(self._store, MemoryTurnStore):
            return False
        calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
        if calls:
            keys = [call_key(digest, call.id) for call in calls for digest in history.loose]
            return not any(self._store.get(self._space, key) for key in keys)
        return not self._said(message, history)

    def _tells(self, message: Message) -> bool:
        """Whether a message without calls belongs to one turn for good. Bare words without a session do not: another
        conversation may yet say the same after the same history, with other thoughts."""
        thoughts = [block for block in message.blocks if isinstance(block, ReasoningBlock)]
        return bool(self._session) or any(block.seal or block.text.strip() for block in thoughts)

    def _kept(self, key: tuple[str, bytes, Message] | None, turn: RecalledTurn) -> RecalledTurn:
        if self._cache is not None and key is not None:
            self._cache.put(key, turn)
        return turn

    # ------------------------------------------------------------------------------------------------- from seals

    def _unsealed(self, message: Message, notes: list[Note]) -> RecalledTurn | None:
        carriers = [
            (place, block.seal)
            for place, block in enumerate(message.blocks)
            if isinstance(block, ReasoningBlock) and block.seal
        ]
        if self._sealer is None or not carriers:
            return None
        segments: dict[int, tuple[int, Segment]] = {}
        turns: set[str] = set()
        for place, seal in carriers[:_MOST_SEALS]:
            opened = self._sealer.open(seal, model=self._model, tenant=self._tenant)
            if isinstance(opened, Unopened):
                notes.append(noted(f"replay.seal_{opened.reason}"))
            else:
                segments[opened.number] = (place, opened)
                turns.add(opened.turn)
        if len(turns) > 1:
            notes.append(noted("replay.several_turns"))
            return None
        return self._joined(message, segments, notes)

    def _joined(
        self, message: Message, segments: dict[int, tuple[int, Segment]], notes: list[Note]
    ) -> RecalledTurn | None:
        """The leading segments that join without a gap."""
        ids: array[int] = array("I")
        end, last = -1, None
        for number in range(len(segments)):
            place, segment = segments.get(number, (-1, None))
            if segment is None or segment.start != len(ids):
                notes.append(noted("replay.gap"))
                break
            ids.extend(segment.ids)
            end, last = max(end, place), segment
        if last is None:
            return None
        compared = message if last.last else Message(role="assistant", blocks=message.blocks[: end + 1])
        changed = edits(last.shape, compared)
        if changed is not None:
            notes.append(noted(f"replay.edited.{changed}"))
            return None
        if not last.last:
            ids = ids[: ids_within(self._tokenizer, ids, thought_end(last.shape))]
        tail = segments[0][1].tail
        text = self._tokenizer.decode(ids)
        return RecalledTurn(ids=ids, text=text, complete=last.last, blocks=end + 1, tail=tail)

    # -------------------------------------------------------------------------------------------------- from store

    def _stored(
        self, message: Message, calls: Sequence[ToolCallBlock], history: HistoryKey, notes: list[Note]
    ) -> RecalledTurn | None:
        if self._store is None:
            return None
        if calls:
            keys = [call_key(digest, call.id) for call in calls for digest in history.loose]
            distinct = _distinct([turn for key in keys for turn in self._store.get(self._space, key)[:1]])
        else:
            distinct = _distinct(self._said(message, history))
        if calls and len(distinct) > 1:
            notes.append(noted("replay.several_turns"))
            return None
        changes = [edits(turn.shape, message) for turn in distinct]
        fitting = [turn for turn, change in zip(distinct, changes, strict=True) if change is None]
        if len(fitting) > 1 and thoughts_mark(message) is None:
            notes.append(noted("replay.ambiguous"))
            return None
        if not fitting:
            if calls and distinct:
                notes.append(noted(f"replay.edited.{changes[0]}"))
            return None
        return fitting[0]

    def _said(self, message: Message, history: HistoryKey) -> Sequence[StoredTurn]:
        """Turns of these words after this history: the session's own where it has one, else any (a forked session)."""
        assert self._store is not None
        for form in (message, thoughts_as_text(message)):
            for session in dict.fromkeys((self._session, "")):
                mark = content_mark(form) if form is not None else b""
                found = self._store.get(self._space, said_key(history.strict, mark, session)) if mark else ()
                if found:
                    return found
        return ()


def ids_within(tokenizer: Tokenizer, ids: Sequence[int], end: int | None) -> int:
    """How many leading ids lie within the first `end` characters of their text, where an engine's batch reached over
    the end of a thought. A token that lies across the end is none of them: what follows the thought is written anew."""
    if end is None:
        return len(ids)
    detokenizer = tokenizer.detokenizer()
    lengths = detokenizer.lengths(ids) if isinstance(detokenizer, ByteDetokenizer) else None
    if lengths is not None:
        return bisect_right(list(accumulate(lengths)), end)
    kept = 0
    # In strides that get shorter: a call for each token costs more than to spell what came before once more.
    for stride in _STRIDES:
        spell = tokenizer.detokenizer().feed
        size = len(spell(ids[:kept]))
        while kept < len(ids):
            size += len(spell(ids[kept : kept + stride]))
            if size > end:
                break
            kept += stride
    return min(kept, len(ids))


def _distinct(turns: Sequence[StoredTurn]) -> list[StoredTurn]:
    kept: list[StoredTurn] = []
    for turn in turns:
        if all(other.ids != turn.ids for other in kept):
            kept.append(turn)
    return kept


def stored_turn(ids: Sequence[int], text: str, shape: bytes, *, tail: str | None = None) -> StoredTurn:
    """A finished turn, ready to be stored."""
    return StoredTurn(ids=array("I", ids), text=text, shape=shape, tail=tail)
