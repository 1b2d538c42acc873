"""A served model: its prompt builder, dialect, engine and what it remembers of earlier turns.

Promise: everything that belongs to one model id is here and nothing else; big prompts are rendered and tokenized off
the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from turnwire.continuity import SessionTracker, Verdict, compared_with, decode_sketch, sketch_of
from turnwire.engines.interface import Engine, EngineInfo, ImageWriting
from turnwire.engines.pool.pool import WorkerPool
from turnwire.gateway.stores.outage import Lookups, SharedTurns
from turnwire.message_facts import message_facts
from turnwire.parsers import Dialect
from turnwire.profiles import Profile
from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.prompt import Prompt, Tokenizer
from turnwire.prompts.recall.recall import RecallCache, TurnRecall, ids_within, stored_turn, turn_keys, turn_space
from turnwire.prompts.recall.seals import Sealer, TurnSealer
from turnwire.prompts.recall.store import KnownTurns, TurnStore
from turnwire.prompts.recall.witness import Witness
from turnwire.prompts.replay.draft import Draft
from turnwire.prompts.size import may_exceed, minimum_tokens
from turnwire.prompts.templates.template import TemplateFailure
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import Conversation, ImageBlock, Sampling

if TYPE_CHECKING:
    from turnwire.gateway.turns.record import TurnRecord

__all__ = ["ModelRuntime", "SharedSessions"]

_T = TypeVar("_T")

_DEFAULTS = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty")
"""What a model may have defaults for."""


class SharedSessions(Protocol):
    """Where processes find the turns and the sketches of sessions that others served; see `continuity.sketch`. A
    `distant` one may have to be waited for."""

    distant: bool

    def put_session(self, session: str, digests: bytes) -> Future[None] | None:
        """Keep a session's newest sketch; done once others can find it."""
        ...

    def session(self, session: str) -> list[bytes]:
        """A session's last sketches, newest first."""
        ...


class ModelRuntime:
    """One served model."""

    # A prompt of which so many bytes are new is built on the event loop: a thread costs more than it saves.
    INLINE_BYTES = 4096
    INLINE_MESSAGES = 500
    # How long the last bytes of a turn wait for it to be where other processes find it, while the store answers: longer
    # than it takes to see that it does not.
    WRITE_S = 2.5
    # How often a turn is looked up that another process may have put into a store that is away.
    LOOK_AGAIN_S = 0.5

    def __init__(
        self,
        model_id: str,
        *,
        engine: Engine,
        info: EngineInfo,
        dialect: Dialect,
        builder: PromptBuilder,
        tokenizer: Tokenizer,
        window: int,
        sealer: Sealer | None = None,
        store: TurnStore | None = None,
        sessions: SharedSessions | None = None,
        aliases: Sequence[str] = (),
        display_name: str | None = None,
        profile: Profile | None = None,
        tracker: SessionTracker | None = None,
        stop_token_ids: tuple[int, ...] = (),
        sampling: Sampling | None = None,
        roles: Sequence[str] = (),
        fallbacks: Sequence[str] = (),
        images: ImageWriting | None = None,
    ) -> None:
        self.id = model_id
        self.aliases = tuple(aliases)
        self.roles = tuple(roles)
        self.fallbacks = tuple(fallbacks)
        self.display_name = display_name or model_id
        self.engine = engine
        # Whether prompts are rendered and counted here. Where the engine reads conversations, its server does both, and
        # what our tokenizer would say of them is nobody's business. All workers of a model are of one kind.
        self.writes_prompts = engine.capabilities.yields != "events"
        self.info = info
        self.dialect = dialect
        self.builder = builder
        self.tokenizer = tokenizer
        self.window = window
        self.stop_token_ids = stop_token_ids
        # How the engine gets images beside the prompts that are written here; None: it gets none.
        self.images = images
        self.profile = profile
        own = sampling or (profile.sampling if profile else Sampling())
        self._defaults = {field: value for field in _DEFAULTS if (value := getattr(own, field)) is not None}
        self._sealer = sealer
        self._store = store
        self._sessions = sessions
        self._shared = store if isinstance(store, SharedTurns) else None
        self._recalled = RecallCache(max_tokens=builder.bounds.recalled)
        self._tracker = tracker if tracker is not None else SessionTracker()
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="prompt")

    async def warm(self) -> None:
        """Use the tokenizer once on the event loop and once in a thread that writes prompts: its first use in a thread
        takes tens of milliseconds, which no turn should wait for."""
        self.tokenizer.encode("Ready.")
        await self.in_thread(partial(self.tokenizer.encode, "Ready."))

    async def build(self, conversation: Conversation, tenant: str) -> Prompt:
        """The prompt of a conversation, with earlier turns replayed exactly where they can be recalled; an empty one
        where the engine's server writes it."""
        if not self.writes_prompts:
            return Prompt(ids=(), tail="")
        if self._shared is None:
            return await self._built(conversation, tenant, self._store)
        # A turn that cannot be looked up while the store restarts is worth some seconds: without it, the engine reads
        # the rest of the prompt again.
        while True:
            lookups = Lookups(self._shared)
            prompt = await self._built(conversation, tenant, lookups)
            left = self._shared.outage.left if lookups.unanswered else 0.0
            if not left:
                return prompt
            await asyncio.sleep(min(left, self.LOOK_AGAIN_S))

    async def _built(self, conversation: Conversation, tenant: str, store: KnownTurns | None) -> Prompt:
        recall = TurnRecall(
            tokenizer=self.tokenizer,
            tenant=tenant,
            model=self.id,
            session=conversation.context.session or "",
            sealer=self._sealer,
            store=store,
            cache=self._recalled,
        )
        try:
            draft: Draft | None = None
            if len(conversation.messages) <= self.INLINE_MESSAGES and (store is None or not store.waits):
                draft = self.builder.begin(conversation, recall, most=self.INLINE_BYTES)
            if draft is not None and draft.work <= self.INLINE_BYTES:
                return draft.finish()
            finish = draft.finish if draft is not None else partial(self.builder.build, conversation, recall)
            return await self.in_thread(finish)
        except TemplateFailure as failure:
            raise TurnFailure(
                "invalid_request", f"The model's chat template refuses this conversation: {failure}"
            ) from None

    def in_thread(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Do work that uses the tokenizer in one of the threads that may: each takes memory for it."""
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    def raw_prompt(self, prompt: str | tuple[int, ...]) -> Prompt:
        """A prompt that goes to the engine as it came."""
        if not self.writes_prompts:
            raise TurnFailure(
                "invalid_request",
                f"The engine of {self.id} takes conversations, not prompts; use /v1/chat/completions.",
            )
        if isinstance(prompt, str):
            return Prompt(ids=self.tokenizer.encode(prompt), tail="")
        size = self.tokenizer.vocab_size
        if any(token >= size for token in prompt):
            raise TurnFailure("invalid_request", f"prompt: token ids go from 0 to {size - 1}", param="prompt")
        return Prompt(ids=list(prompt), tail="")

    async def prepare(self, inbound: Inbound[Any], tenant: str, session: str) -> tuple[Prompt, Verdict]:
        """The prompt, and whether it keeps the prefix of its `session`, as `session_key` names it."""
        conversation = inbound.conversation
        if self.writes_prompts and may_exceed(conversation, self.window):
            await self._refuse_the_hopeless(conversation)
        prompt = await self.build(conversation, tenant)
        if not self.writes_prompts or self.shown(conversation):
            return prompt, Verdict(state="unseen")
        verdict = self._tracker.compare(session, prompt, conversation, previous=inbound.previous_turn)
        if verdict.state != "held" and self._sessions is not None:
            later = message_facts(conversation.messages).turns > 0
            kept = await self._kept_sketches(self._sessions, self._shared_key(session), later=later)
            sketches = [sketch for data in kept if (sketch := decode_sketch(data)) is not None]
            if sketches:
                other = compared_with(sketches, prompt, conversation, previous=inbound.previous_turn)
                verdict = _better(verdict, other, inbound.previous_turn)
        return prompt, verdict

    async def _kept_sketches(self, sessions: SharedSessions, key: str, *, later: bool) -> list[bytes]:
        """What other processes have kept of a session. A `later` turn has some, so a store that restarts is waited
        for."""
        loop = asyncio.get_running_loop()
        while True:
            kept = await loop.run_in_executor(self._threads, sessions.session, key)
            left = self._shared.outage.left if later and not kept and self._shared is not None else 0.0
            if not left:
                return kept
            await asyncio.sleep(min(left, self.LOOK_AGAIN_S))

    def _shared_key(self, key: str) -> str:
        return f"{len(self.id)}:{self.id}:{key}"

    async def _refuse_the_hopeless(self, conversation: Conversation) -> None:
        """Refuse what cannot fit into the window before it is rendered and tokenized."""
        count = partial(minimum_tokens, conversation, self.tokenizer, enough=self.window)
        least = await asyncio.get_running_loop().run_in_executor(self._threads, count)
        if least > self.window:
            raise self.too_long(least)

    def too_long(self, least: int) -> TurnFailure:
        """The refusal of a prompt that has at least so many tokens."""
        return TurnFailure(
            "context_overflow",
            f"The prompt has at least {least} tokens and the model's window is {self.window}.",
            prompt_tokens=least,
            window=self.window,
        )

    def remember(self, turn: TurnRecord[Any]) -> Future[None] | None:
        """Keep what the next turn needs: its tokens to compare with, and the raw turn for clients that drop or rewrite
        parts of it. A session whose client says that this was its last turn is forgotten instead. What is returned is
        done once other processes can find all that; None where there are none."""
        outcome = turn.outcome
        if outcome is None or not self.writes_prompts:
            return None
        conversation = turn.inbound.conversation
        if self.engine.capabilities.cached_tokens:
            turn.continuity = turn.continuity.reported(outcome.usage.cached)
        key = turn.session
        thought = outcome.witness is not None and bool(outcome.witness.thoughts)
        if conversation.context.final:
            self._tracker.forget(key)
            return None
        self._tracker.remember(key, turn.prompt, conversation, outcome.output_ids, thought=thought, turn=turn.turn_id)
        written = None
        if self._sessions is not None:
            sketch = sketch_of(turn.prompt, conversation, outcome.output_ids, turn=turn.turn_id)
            written = self._sessions.put_session(self._shared_key(key), msgspec.msgpack.encode(sketch))
        if self._store is None or outcome.witness is None or not outcome.text:
            return written
        history, session = turn.prompt.history, conversation.context.session or ""
        if history is not None:
            keys = turn_keys(history, call_ids=outcome.call_ids, said=outcome.witness.said, session=session)
            # An engine that reports no ids still gets a stable replay: the same ids each time, if not its own.
            ids = outcome.output_ids or self.tokenizer.encode(outcome.text)
            shape, text, begun = outcome.witness.shape(last=True), outcome.text, turn.prompt.begun
            if begun is not None:
                ids, text = [*begun.ids, *ids], begun.text + text
            stored = stored_turn(ids, text, shape, tail=turn.prompt.header)
            # Written in order, so that the second is done once both are.
            written = self._store.put(turn_space(turn.tenant, self.id), keys, stored) or written
        return written

    async def written(self, written: Future[None]) -> None:
        """Wait for what `remember` returned: a slow store is not waited for, one that restarts is."""
        waiting = {asyncio.wrap_future(written)}
        _, waiting = await asyncio.wait(waiting, timeout=self.WRITE_S)
        while waiting and self._shared is not None and (left := self._shared.outage.left):
            _, waiting = await asyncio.wait(waiting, timeout=left)

    def remember_cut(self, turn: TurnRecord[Any]) -> None:
        """Keep what the engine read for a turn that ended early: the next one is compared with it."""
        conversation = turn.inbound.conversation
        if self.writes_prompts and not conversation.context.final:
            key = turn.session
            self._tracker.remember(key, turn.prompt, conversation, turn=turn.turn_id, cut=True)
            if self._sessions is not None:
                sketch = sketch_of(turn.prompt, conversation, turn=turn.turn_id, cut=True)
                self._sessions.put_session(self._shared_key(key), msgspec.msgpack.encode(sketch))

    # ----------------------------------------------------------------------------------------------- per request

    def seals_for(self, tenant: str, turn_id: str, prompt: Prompt, witness: Witness) -> TurnSealer | None:
        """A sealer for one turn, where the engine reports its token ids: of its output, and of what the client began it
        with."""
        if self._sealer is None or self.engine.capabilities.yields != "tokens":
            return None
        sealer = self._sealer.turn(turn_id, model=self.id, tenant=tenant, shape=witness, tail=prompt.header)
        if prompt.begun is not None:
            sealer.add(prompt.begun.ids)
        return sealer

    def restores(self, prompt: Prompt, witness: Witness, ids: Sequence[int], sealed: int) -> bool:
        """Whether a finished turn comes back exactly without a seal of its end: what the client will send back, after
        what the seals of its thoughts hold (the first `sealed` ids), gives the very same tokens."""
        if prompt.foresight is None:
            return False
        kept = ids_within(self.tokenizer, ids[:sealed], witness.thoughts[-1][1]) if witness.thoughts else 0
        return prompt.foresight.restores(ids, kept, witness.rest)

    @property
    def usable(self) -> bool:
        """Whether some worker would take a turn, as far as is known without asking."""
        return not isinstance(self.engine, WorkerPool) or any(not worker.down for worker in self.engine.workers)

    @property
    def fetches(self) -> bool:
        """Whether the engine reads the conversation or its images itself, and would go and get what it refers to."""
        return not self.writes_prompts or self.images is not None

    @property
    def sees(self) -> bool:
        """Whether images reach the model, as far as its server or its profile says."""
        if self.writes_prompts:
            return self.images is not None
        known = self.info.sees
        return self.engine.capabilities.images and (
            known if known is not None else self.profile is not None and self.profile.images
        )

    def shown(self, conversation: Conversation) -> tuple[ImageBlock, ...]:
        """The images that the engine gets beside the prompt."""
        return message_facts(conversation.messages).images if self.images is not None else ()

    def cache_salt(self, tenant: str, wanted: str | None = None) -> str | None:
        """What keeps one tenant's prefix cache apart from another's, and within it what a request wants apart."""
        if not self.engine.capabilities.cache_salt:
            return None
        own = None if tenant == "default" else tenant
        return own if wanted is None else f"{own or ''}/{wanted}"

    def defaults_under(self, sampling: Sampling) -> Sampling:
        """The request's wishes over the model's defaults."""
        missing = {field: value for field, value in self._defaults.items() if getattr(sampling, field) is None}
        return msgspec.structs.replace(sampling, **missing) if missing else sampling


def _better(own: Verdict, other: Verdict, previous: str | None) -> Verdict:
    """Of what this process remembers and what others left as digests, the one that says more: the turn that the prompt
    goes on from, and of one turn the words of the process that has its text."""
    if other.state == "first" or (other.state == "broken" and own.state == "broken" and own.shared >= other.shared):
        return own
    return msgspec.structs.replace(other, found=not previous or other.turn == previous)
