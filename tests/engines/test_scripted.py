"""The scripted engine: which line answers, how it is cut and paced, how it fails, what it caches."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from turnwire.engines.bridge import pull
from turnwire.engines.interface import Completion, EngineError, GenerateRequest, Hints, Step, TokenBatch
from turnwire.engines.scripted.engine import ScriptedEngine
from turnwire.engines.scripted.prefix_cache_model import PrefixCache
from turnwire.engines.scripted.script import Line, Script, ScriptError
from turnwire.engines.scripted.timer_wheel import Due, TimerWheel
from turnwire.turns import Conversation, Message, Sampling, TextBlock

from .toytokenizer import ToyTokenizer


def conversation(*texts: str) -> Conversation:
    """Alternating user and assistant messages."""
    return Conversation(
        model="m",
        messages=tuple(
            Message(role="assistant" if at % 2 else "user", blocks=(TextBlock(text=text),))
            for at, text in enumerate(texts)
        ),
    )


def request(
    *texts: str, prompt: list[int] | None = None, salt: str | None = None, **sampling: object
) -> GenerateRequest:
    return GenerateRequest(
        prompt_ids=prompt if prompt is not None else list(range(40)),
        sampling=Sampling(**sampling),  # type: ignore[arg-type]
        hints=Hints(request_id="r", cache_salt=salt),
        conversation=conversation(*(texts or ("hi",))),
    )


def engine(*lines: Line | str, **options: object) -> ScriptedEngine:
    script = [Line(text=line) if isinstance(line, str) else line for line in lines]
    return ScriptedEngine(script, ToyTokenizer(), **options)  # type: ignore[arg-type]


async def play(subject: ScriptedEngine, wanted: GenerateRequest) -> tuple[list[TokenBatch], Completion]:
    steps: list[Step] = [step async for step in pull(subject, wanted)]
    completion = steps.pop()
    assert isinstance(completion, Completion)
    assert all(isinstance(step, TokenBatch) for step in steps)
    return steps, completion  # type: ignore[return-value]


async def said(subject: ScriptedEngine, *texts: str, **sampling: object) -> str:
    batches, _ = await play(subject, request(*texts, **sampling))
    return "".join(batch.text for batch in batches)


# ------------------------------------------------------------------------------------------------ which line


async def test_line_k_answers_a_conversation_with_k_assistant_turns_and_the_last_repeats() -> None:
    subject = engine("first", "second")
    assert await said(subject, "a") == "first"
    assert await said(subject, "a", "b", "c") == "second"
    assert await said(subject, "a", "b", "c", "d", "e") == "second"


async def test_adjacent_assistant_messages_are_one_turn() -> None:
    subject = engine("first", "second", "third")
    wanted = request()
    messages = [("user", "a"), ("assistant", "b"), ("assistant", "c"), ("user", "d")]
    wanted = GenerateRequest(
        prompt_ids=[1],
        sampling=Sampling(),
        hints=Hints(request_id="r"),
        conversation=Conversation(
            model="m",
            messages=tuple(Message(role=role, blocks=(TextBlock(text=text),)) for role, text in messages),  # type: ignore[arg-type]
        ),
    )
    batches, _ = await play(subject, wanted)
    assert "".join(batch.text for batch in batches) == "second"


async def test_a_matched_line_answers_only_its_requests_and_does_not_count() -> None:
    subject = engine(Line(text="A Title", match="title of"), "first", "second")
    assert await said(subject, "write a title of this") == "A Title"
    assert await said(subject, "a") == "first"
    assert await said(subject, "a", "b", "c") == "second"
    assert await said(subject, "a", "b", "the title of it") == "A Title"


async def test_lines_with_the_same_match_are_a_script_of_their_own() -> None:
    subject = engine("main", Line(text="side one", match="sub"), Line(text="side two", match="sub"))
    assert await said(subject, "sub task") == "side one"
    assert await said(subject, "sub task", "x", "sub more") == "side two"


async def test_no_line_fits_is_an_error_that_says_so() -> None:
    with pytest.raises(EngineError, match="match") as caught:
        await said(engine(Line(text="x", match="never")), "a")
    assert caught.value.kind == "invalid_request"


# ---------------------------------------------------------------------------------------------------- cutting

UNICODE = "héllo <think>wörld 😀 日本</think> fin"


@pytest.mark.parametrize("cut", ["token", "all", 1, 3, 7, 1000])
@pytest.mark.parametrize("burst", [1, 2, 8])
@pytest.mark.parametrize("text", [UNICODE, "", "x", "😀"])
async def test_every_cut_delivers_the_same_text_and_ids(cut: str | int, burst: int, text: str) -> None:
    tokenizer = ToyTokenizer()
    subject = ScriptedEngine([Line(text=text, cut=cut, burst=burst)], tokenizer)  # type: ignore[arg-type]
    batches, completion = await play(subject, request())
    assert "".join(batch.text for batch in batches) == text
    ids = [token for batch in batches for token in batch.ids]
    assert ids == tokenizer.encode(text)
    assert completion == Completion("stop", 40, len(ids))


async def test_token_cut_is_one_token_per_batch_when_burst_is_one() -> None:
    batches, _ = await play(engine(Line(text="one two 😀", burst=1)), request())
    assert [(batch.text, len(batch.ids)) for batch in batches] == [
        ("one ", 1), ("two ", 1), ("", 1), ("", 1), ("", 1), ("😀", 1),
    ]  # fmt: skip


async def test_character_cut() -> None:
    batches, _ = await play(engine(Line(text="abcdefgh", cut=3, burst=1)), request())
    assert [batch.text for batch in batches] == ["abc", "def", "gh"]


async def test_max_tokens_cuts_and_says_length() -> None:
    batches, completion = await play(engine("one two three four"), request(max_tokens=2))
    assert "".join(batch.text for batch in batches) == "one two "
    assert completion == Completion("length", 40, 2)


async def test_max_tokens_beyond_the_text_changes_nothing() -> None:
    _, completion = await play(engine("one two"), request(max_tokens=2))
    assert completion.reason == "stop"


async def test_a_stop_string_cuts_before_it_even_inside_a_token() -> None:
    batches, completion = await play(engine("one two three four"), request(stop=("zzz", "o th", "hree")))
    assert "".join(batch.text for batch in batches) == "one tw"
    assert (completion.reason, completion.stop_sequence, completion.output_tokens) == ("stop_sequence", "o th", 3)


async def test_the_earliest_of_stop_and_length_wins() -> None:
    _, completion = await play(engine("one two three four"), request(stop=("four",), max_tokens=3))
    assert (completion.reason, completion.output_tokens) == ("length", 3)
    _, completion = await play(engine("one two three four"), request(stop=("two",), max_tokens=3))
    assert completion.reason == "stop_sequence"


async def test_logprobs_are_given_per_token_when_asked() -> None:
    batches, _ = await play(engine("one two"), request(logprobs=1))
    assert [entry.token for batch in batches for entry in batch.logprobs] == ["one ", "two"]


# ---------------------------------------------------------------------------------------------------- endings


async def test_finish_length() -> None:
    _, completion = await play(engine(Line(text="a b", finish="length")), request())
    assert completion.reason == "length"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (Line(text="one two three four", finish="disconnect"), "disconnected"),
        (Line(text="one two three four", finish="error"), "internal"),
        (Line(text="one two three four", finish="error", error="overloaded"), "overloaded"),
    ],
)
@pytest.mark.parametrize("after", [None, 0, 1, 99])
async def test_failures_come_after_the_chosen_token(line: Line, kind: str, after: int | None) -> None:
    line = Line(text=line.text, finish=line.finish, error=line.error, after=after, burst=1)
    texts: list[str] = []

    async def read() -> None:
        async for step in pull(engine(line), request()):
            assert isinstance(step, TokenBatch)
            texts.append(step.text)

    with pytest.raises(EngineError) as caught:
        await read()
    assert caught.value.kind == kind
    words = ["one ", "two ", "three ", "four"]
    assert texts == words[: 2 if after is None else after]


async def test_hang_delivers_then_waits_until_the_engine_closes() -> None:
    subject = engine(Line(text="one two", finish="hang", after=1))
    stream = pull(subject, request())
    first = await anext(stream)
    assert isinstance(first, TokenBatch)
    assert first.text == "one "
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    await subject.close()
    with pytest.raises(EngineError) as caught:
        await waiting
    assert caught.value.kind == "disconnected"
    assert not await subject.health()


async def test_close_ends_paced_and_unpaced_streams() -> None:
    subject = engine(Line(text="a " * 50, delay_ms=1000, match="slow"), "b " * 500)
    slow, fast = pull(subject, request("slow")), pull(subject, request("fast"))
    await anext(slow)
    await anext(fast)
    await subject.close()
    for stream in (slow, fast, pull(subject, request())):
        with pytest.raises(EngineError) as caught:
            [step async for step in stream]
        assert caught.value.kind == "disconnected"


async def test_leaving_a_paced_stream_leaves_nothing_behind() -> None:
    subject = engine(Line(text="a " * 50, delay_ms=5), "x")
    stream = pull(subject, request())
    await anext(stream)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await stream.aclose()
    assert await said(subject, "a", "b", "c") == "x"


# ---------------------------------------------------------------------------------------------------- pacing


async def test_unpaced_streams_interleave() -> None:
    subject = engine(Line(text="w " * 64, burst=4))
    order: list[int] = []

    class Noting:
        def __init__(self, number: int) -> None:
            self._number = number

        def tokens(self, batch: TokenBatch) -> None:
            order.append(self._number)

        def done(self, completion: Completion) -> None:
            assert completion.output_tokens == 64

    for number in range(4):
        subject.submit(request(), Noting(number))  # type: ignore[arg-type]
    while len(order) < 64:
        await asyncio.sleep(0)
    assert order == [0, 1, 2, 3] * 16


async def test_paced_stream_takes_its_time_and_a_late_reader_gets_what_became_due() -> None:
    subject = engine(Line(text="w " * 40, delay_ms=10))
    started = time.monotonic()
    await play(subject, request())
    assert time.monotonic() - started >= 0.39
    batches: list[TokenBatch] = []

    class Late:
        def tokens(self, batch: TokenBatch) -> None:
            batches.append(batch)
            generation.pause()

    generation = subject.submit(request(), Late())  # type: ignore[arg-type]
    await asyncio.sleep(0.1)
    generation.resume()
    await asyncio.sleep(0.02)
    assert (len(batches), len(batches[0].ids)) == (2, 1)
    assert len(batches[1].ids) >= 8
    generation.abort()


async def test_wheel_calls_in_order_and_keeps_one_timer() -> None:
    wheel, loop = TimerWheel(), asyncio.get_running_loop()
    now, called = loop.time(), list[int]()

    def call(number: int, when: float) -> None:
        called.append(number)
        assert loop.time() >= when - 0.002

    for number, wait in ((3, 0.03), (1, 0.01), (0, -1), (2, 0.02), (4, 0.02)):
        due = wheel.at(now + wait, partial(call, number, now + wait))
    due.cancel()
    await asyncio.sleep(0.05)
    assert called == [0, 1, 2, 3]


# ---------------------------------------------------------------------------------------------------- caching


async def test_the_prefix_cache_holds_prompts_and_answers_by_blocks_of_16() -> None:
    tokenizer = ToyTokenizer()
    subject = ScriptedEngine([Line(text="w " * 30)], tokenizer)
    prompt = list(range(100))
    answer = tokenizer.encode("w " * 30)

    async def cached(ids: list[int], salt: str | None = None) -> int:
        _, completion = await play(subject, request(prompt=ids, salt=salt))
        assert completion.prompt_tokens == len(ids)
        return completion.cached_tokens

    assert await cached(prompt) == 0
    assert await cached(prompt) == 96
    assert await cached([*prompt, *answer, 1, 2]) == 128
    assert await cached([*prompt[:50], 999, *prompt[51:]]) == 48
    assert await cached(prompt[:96]) == 80, "the last token is always computed"
    assert await cached(prompt, "tenant") == 0, "salts do not share"


async def test_cached_prompts_start_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def at(self: TimerWheel, when: float, call: Callable[[], None]) -> Due:
        waits.append(when - asyncio.get_running_loop().time())
        asyncio.get_running_loop().call_soon(call)
        return Due(call)

    monkeypatch.setattr(TimerWheel, "at", at)
    subject = engine(Line(text="x", first_delay_ms=2000), prefill_tokens_per_s=100)
    prompt = list(range(320))
    await play(subject, request(prompt=prompt))
    await play(subject, request(prompt=prompt))
    assert [round(wait, 1) for wait in waits] == [5.2, 2.2], "320 and then 16 tokens at 100 per second, plus the delay"


def test_prefix_cache_is_bounded_and_forgets_the_oldest() -> None:
    cache = PrefixCache(block_size=4, capacity_blocks=4)
    old, new = cache.sequence(range(13)), cache.sequence(range(100, 109))
    cache.store(old)
    assert cache.match(old) == 12
    cache.store(new)
    assert cache.match(new) == 8
    assert cache.match(old) == 0, "its first block went first"


async def test_the_window_is_kept() -> None:
    with pytest.raises(EngineError) as caught:
        await play(engine("x", window=40), request())
    assert caught.value.kind == "context_overflow"
    assert "40" in caught.value.message


# ------------------------------------------------------------------------------------------------------- file


def test_a_file_loads_with_blank_lines_and_every_key(tmp_path: Path) -> None:
    rows = [
        {"text": "a"},
        {"text": "b", "finish": "hang", "first_delay_ms": 5, "delay_ms": 0.5, "cut": 3, "match": "m", "burst": 2},
        {"text": "c", "finish": "error", "error": "overloaded", "message": "busy", "after": 3},
        {"text": "d", "prefill_tokens_per_s": 100, "cut": "all"},
    ]
    file = tmp_path / "script.jsonl"
    file.write_text("\n\n".join(json.dumps(row) for row in rows) + "\n")
    script = Script.load(file, ToyTokenizer())
    assert script.line_for(conversation("a", "b", "c")).text == "c"
    assert script.line_for(conversation("m")).delay_ms == 0.5


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "holds no line"),
        ('{"text": "a"}\n{"text": 5}', r"line 2.*\$\.text"),
        ('{"text": "a", "finsih": "stop"}', "line 1.*finsih"),
        ('{"text": "a", "finish": "boom"}', "line 1.*boom"),
        ('{"text": "a", "cut": 0}', "line 1.*cut"),
        ('{"text": "a", "cut": "words"}', "line 1.*cut"),
        ('{"text": "a", "burst": 0}', "line 1.*burst"),
        ('{"text": "a", "delay_ms": -1}', "line 1.*negative"),
        ('{"text": "a", "prefill_tokens_per_s": 0}', "line 1.*prefill"),
        ("{", "line 1"),
    ],
)
def test_a_broken_file_is_refused_with_line_and_key(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "script.jsonl"
    file.write_text(content)
    with pytest.raises(ScriptError, match=complaint) as caught:
        Script.load(file, ToyTokenizer())
    assert str(file) in str(caught.value)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="cannot read the script"):
        Script.load(tmp_path / "none.jsonl", ToyTokenizer())


async def test_start_warns_of_text_the_tokenizer_changes() -> None:
    class Lossy(ToyTokenizer):
        def encode(self, text: str) -> list[int]:
            return super().encode(text.lower())

    info = await ScriptedEngine([Line(text="same"), Line(text="Changed")], Lossy()).start()
    assert [warning.startswith("line 2") for warning in info.warnings] == [True]


async def test_a_plain_line_ends_the_thought_that_the_prompt_opened() -> None:
    lines = [Line(text="Hi", finish="error", after=1)]
    tokenizer = ToyTokenizer()
    opened = tokenizer.encode("<think>\n")
    script = Script(lines, tokenizer)
    line = script.after_prompt(lines[0], [1, 2, *opened])
    assert line.text == "</think>\n\nHi"
    assert line.after == 1 + len(tokenizer.encode("</think>\n\n"))
    assert script.after_prompt(lines[0], [1, 2]) is lines[0]
    for said in ("<think>\nwell", "well</think>Hi"):
        kept = Line(text=said)
        assert script.after_prompt(kept, opened) is kept
