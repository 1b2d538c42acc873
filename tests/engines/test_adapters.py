"""What each HTTP adapter says to its engine, and what it finds out at start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from turnwire.engines.bridge import pull
from turnwire.engines.http.engine import HTTPEngine
from turnwire.engines.interface import Constraint, EngineError, EngineInfo, GenerateRequest, Hints
from turnwire.engines.llamacpp import LlamaCppEngine
from turnwire.engines.scripted.script import Line
from turnwire.engines.sglang import SGLangEngine
from turnwire.engines.spec import create_engine, parse_spec
from turnwire.engines.trtllm import TRTLLMEngine
from turnwire.engines.upstream.chat import OpenAIEngine
from turnwire.engines.vllm import VLLMEngine
from turnwire.turns import Sampling

from .conformance import collect, fails, ids_of, request, soon, text_of
from .servers import FakeChat, FakeLlamaCpp, FakeServer, FakeSGLang, FakeTRTLLM, FakeVLLM
from .toytokenizer import ToyTokenizer

TOKENIZER = ToyTokenizer()
KINDS: dict[str, tuple[type[FakeServer], Callable[[str], HTTPEngine]]] = {
    "vllm": (FakeVLLM, VLLMEngine),
    "sglang": (FakeSGLang, lambda url: SGLangEngine(url, TOKENIZER)),
    "trtllm": (FakeTRTLLM, lambda url: TRTLLMEngine(url, TOKENIZER)),
    "llamacpp": (FakeLlamaCpp, lambda url: LlamaCppEngine(url, TOKENIZER)),
    "openai": (FakeChat, OpenAIEngine),
}
LINE = Line(text="one two three", burst=1)


@asynccontextmanager
async def opened(
    kind: str, line: Line = LINE, **options: object
) -> AsyncIterator[tuple[HTTPEngine, FakeServer, EngineInfo]]:
    server_type, engine_type = KINDS[kind]
    server = server_type(line, ToyTokenizer())
    for name, value in options.items():
        setattr(server, name, value)
    engine = engine_type(await server.start())
    try:
        yield engine, server, await engine.start()
    finally:
        await engine.close()
        await server.stop()


async def sent(kind: str, wanted: GenerateRequest, **options: object) -> dict[str, Any]:
    """The body of the one generation that `wanted` becomes."""
    async with opened(kind, **options) as (engine, server, _info):
        server.requests.clear()
        await collect(engine, wanted)
        (body,) = server.requests
        assert server.headers[-1]["X-Request-Id"] == "req-1"
        return body


def hinted(**hints: object) -> GenerateRequest:
    return msgspec.structs.replace(request(), hints=Hints(request_id="req-1", **hints))  # type: ignore[arg-type]


def guided(constraint: Constraint) -> GenerateRequest:
    return msgspec.structs.replace(request(), constraint=constraint)


# ---------------------------------------------------------------------------------------------------- sampling


@pytest.mark.parametrize("kind", ["vllm", "sglang", "trtllm", "llamacpp"])
async def test_prompt_ids_and_limits(kind: str) -> None:
    body = await sent(kind, request(temperature=0.25, top_p=0.5, top_k=7, min_p=0.1, seed=3, max_tokens=9))
    params = body["sampling_params"] if kind == "sglang" else body
    assert body["input_ids" if kind == "sglang" else "prompt"] == list(range(100, 180))
    limit = {"sglang": "max_new_tokens", "llamacpp": "n_predict"}.get(kind, "max_tokens")
    assert params[limit] == 9
    assert (params["temperature"], params["top_p"], params["top_k"], params["min_p"]) == (0.25, 0.5, 7, 0.1)
    assert params["sampling_seed" if kind == "sglang" else "seed"] == 3
    assert body["stream"] is True


async def test_vllm_gets_every_wish_under_its_own_name() -> None:
    wishes: dict[str, Any] = {
        "max_tokens": 9,
        "temperature": 0.0,
        "top_p": 0.5,
        "top_k": 7,
        "min_p": 0.1,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.2,
        "repetition_penalty": 1.1,
        "seed": 0,
        "stop": ["END"],
        "logprobs": 0,
        "logit_bias": {"7": -1.0},
    }
    assert set(wishes) == set(Sampling.__struct_fields__), "what vLLM calls another wish is to be found out"
    body = await sent("vllm", request(**{**wishes, "stop": ("END",)}))
    assert {name: body[name] for name in wishes} == wishes
    plain = await sent("vllm", request())
    assert not set(wishes) - {"max_tokens"} & set(plain), "a wish that was not made is the engine's own"


@pytest.mark.parametrize(("kind", "room"), [("vllm", 920), ("sglang", 918), ("llamacpp", 920)])
async def test_the_window_bounds_what_is_asked_for(kind: str, room: int) -> None:
    for wish in (None, 5000):
        body = await sent(kind, request(max_tokens=wish))
        limit = {"sglang": "max_new_tokens", "llamacpp": "n_predict"}.get(kind, "max_tokens")
        assert (body["sampling_params"] if kind == "sglang" else body)[limit] == room
    async with opened(kind) as (engine, server, _info):
        server.requests.clear()
        error, _ = await fails(engine, request(prompt=list(range(1000))))
        assert error.kind == "context_overflow"
        assert not server.requests, "what cannot fit is not sent"


async def test_stop_token_ids_are_passed_and_the_end_token_is_told() -> None:
    wanted = msgspec.structs.replace(request(), stop_token_ids=(260, 259))
    assert (await sent("vllm", wanted))["stop_token_ids"] == [260, 259]
    assert (await sent("sglang", wanted))["sampling_params"]["stop_token_ids"] == [260, 259]
    assert (await sent("trtllm", wanted))["stop_token_ids"] == [260, 259]
    for kind in ("vllm", "sglang", "trtllm", "llamacpp"):
        async with opened(kind) as (engine, _server, _info):
            steps, completion = await collect(engine, wanted)
            assert ids_of(steps) == ToyTokenizer().encode("one two three")
            assert completion.output_tokens == 4


# ------------------------------------------------------------------------------------------------------- hints


async def test_priority_polarity() -> None:
    urgent = hinted(priority=3)
    assert (await sent("vllm", urgent))["priority"] == -3
    assert (await sent("sglang", urgent))["priority"] == 3
    assert (await sent("sglang", urgent, low_first=True))["priority"] == -3
    assert (await sent("trtllm", urgent))["priority"] == pytest.approx(0.65)
    assert (await sent("trtllm", hinted(priority=-999)))["priority"] == 0.0
    assert "priority" not in await sent("trtllm", hinted())
    assert "priority" not in await sent("vllm", hinted())


async def test_priority_is_left_out_where_the_server_would_refuse_it() -> None:
    assert "priority" not in await sent("vllm", hinted(priority=3), priorities=False)


async def test_cache_salt() -> None:
    assert (await sent("vllm", hinted(cache_salt="s")))["cache_salt"] == "s"
    assert (await sent("sglang", hinted(cache_salt="s")))["extra_key"] == "s"
    assert "cache_salt" not in await sent("vllm", hinted())


# ------------------------------------------------------------------------------------------------------ guided

SCHEMA: dict[str, object] = {"type": "object", "properties": {"a": {"type": "integer"}}}


async def test_guided_decoding() -> None:
    schema, regex = Constraint(json_schema=SCHEMA), Constraint(regex="[ab]+")
    grammar = Constraint(gbnf='root ::= "a"')
    assert (await sent("vllm", guided(schema)))["structured_outputs"] == {"json": SCHEMA}
    assert (await sent("vllm", guided(regex)))["structured_outputs"] == {"regex": "[ab]+"}
    assert (await sent("vllm", guided(grammar)))["structured_outputs"] == {"grammar": 'root ::= "a"'}
    assert msgspec.json.decode((await sent("sglang", guided(schema)))["sampling_params"]["json_schema"]) == SCHEMA
    assert (await sent("sglang", guided(regex)))["sampling_params"]["regex"] == "[ab]+"
    assert (await sent("sglang", guided(grammar)))["sampling_params"]["ebnf"] == 'root ::= "a"'
    assert (await sent("trtllm", guided(schema)))["response_format"] == {"type": "json", "schema": SCHEMA}
    assert (await sent("llamacpp", guided(schema)))["json_schema"] == SCHEMA
    assert (await sent("llamacpp", guided(grammar)))["grammar"] == 'root ::= "a"'


async def test_vllm_with_the_native_route_is_asked_there() -> None:
    wanted = msgspec.structs.replace(
        request(temperature=0.5, stop=("END",), max_tokens=9),
        constraint=Constraint(regex="a+"),
        hints=Hints(request_id="req-1", priority=2, cache_salt="s"),
    )
    body = await sent("vllm", wanted, native=True)
    assert body["token_ids"] == list(range(100, 180))
    assert body["output_mode"] == "text"
    assert (body["priority"], body["cache_salt"]) == (-2, "s")
    assert body["sampling_params"] == {
        "max_tokens": 9,
        "temperature": 0.5,
        "stop": ["END"],
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "structured_outputs": {"regex": "a+"},
    }
    assert "prompt" in await sent("vllm", request(logprobs=1), native=True), "its log probabilities read otherwise"


async def test_old_vllm_takes_the_old_names() -> None:
    body = await sent("vllm", guided(Constraint(json_schema=SCHEMA)), version="0.10.2")
    assert body["guided_json"] == SCHEMA


@pytest.mark.parametrize("kind", ["sglang", "trtllm", "llamacpp"])
async def test_a_constraint_the_engine_does_not_know_is_refused_not_dropped(kind: str) -> None:
    async with opened(kind) as (engine, _server, _info):
        error, _ = await fails(engine, guided(Constraint(lark='start: "a"')))
        assert error.kind == "invalid_request"


# --------------------------------------------------------------------------------------------------- discovery


async def test_vllm_is_discovered() -> None:
    async with opened("vllm") as (engine, _server, info):
        assert info == EngineInfo(name="vllm", version="0.32.0", model="toy", window=1000, sees=False)
        assert engine.capabilities.cached_tokens
        assert engine.capabilities.priority


async def test_vllm_names_the_flags_it_lacks() -> None:
    async with opened("vllm", tells_cached=False, priorities=False) as (engine, server, info):
        assert any("--enable-prompt-tokens-details" in warning for warning in info.warnings)
        assert any("--scheduling-policy priority" in warning for warning in info.warnings)
        assert not engine.capabilities.cached_tokens
        assert not engine.capabilities.priority
        probes = [len(body["prompt"]) for body in server.requests]
        assert probes[-2:] == [33, 33], "two blocks and one token, twice"
    async with opened("vllm", caching=False) as (_engine, _server, info):
        assert any("--enable-prefix-caching" in warning for warning in info.warnings)


async def test_vllm_that_cannot_return_ids_is_refused() -> None:
    with pytest.raises(EngineError, match=r"0\.10\.2 or newer"):
        async with opened("vllm", version="0.9.1"):
            pass


async def test_sglang_names_the_flags_it_lacks() -> None:
    async with opened("sglang", incremental=False) as (_engine, _server, info):
        assert [warning for warning in info.warnings if "--incremental-streaming-output" in warning]
    async with opened("sglang") as (_engine, _server, info):
        assert info == EngineInfo(name="sglang", version="0.5.23", model="toy", window=1000)


async def test_trtllm_and_llamacpp_are_discovered() -> None:
    async with opened("trtllm") as (_engine, _server, info):
        assert (info.version, info.model, info.window) == ("1.2.0", "toy", None)
        assert any("max_seq_len" in warning for warning in info.warnings)
    async with opened("llamacpp") as (_engine, _server, info):
        assert info == EngineInfo(name="llamacpp", version="b1-abc", model="toy", window=1000, sees=False)


@pytest.mark.parametrize("engine", [VLLMEngine, lambda url, model: SGLangEngine(url, TOKENIZER, model=model)])
async def test_a_model_the_engine_does_not_serve(engine: Callable[..., HTTPEngine]) -> None:
    server = (FakeVLLM if engine is VLLMEngine else FakeSGLang)(LINE, ToyTokenizer())
    subject = engine(await server.start(), model="other")
    with pytest.raises(EngineError, match="serves no model 'other' but toy"):
        await subject.start()
    await subject.close()
    await server.stop()


@pytest.mark.parametrize("kind", KINDS)
async def test_nobody_there(kind: str) -> None:
    engine = KINDS[kind][1]("http://127.0.0.1:9")
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:9") as caught:
        await engine.start()
    assert caught.value.kind == "unreachable"
    assert not await engine.health()
    await engine.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_restarted_engine_is_used_again(kind: str) -> None:
    async with opened(kind) as (engine, server, _info):
        await collect(engine, request())
        port = int(server.url.rpartition(":")[2])
        await server.stop()
        error, _ = await fails(engine, request())
        assert error.kind == "unreachable"
        assert not await engine.health()
        await server.start(port)
        steps, _completion = await collect(engine, request())
        assert text_of(steps) == "one two three"
        assert await engine.health()


async def test_the_key_is_sent() -> None:
    server = FakeVLLM(LINE, ToyTokenizer())
    engine = VLLMEngine(await server.start(), api_key="secret")
    await engine.start()
    await collect(engine, request())
    assert server.headers[-1]["Authorization"] == "Bearer secret"
    await engine.close()
    await server.stop()


# --------------------------------------------------------------------------------------------------- streaming


@pytest.mark.parametrize("kind", ["vllm", "sglang", "trtllm", "llamacpp"])
async def test_all_events_of_one_read_are_one_batch(kind: str) -> None:
    async with opened(kind, Line(text="word " * 50, burst=1), glue=True) as (engine, _server, _info):
        steps, completion = await collect(engine, request())
        assert text_of(steps) == "word " * 50
        assert len(steps) <= 3, "however many events, few reads"
        assert completion.output_tokens == 51


async def test_sglang_is_told_to_stop_a_left_stream() -> None:
    async with opened("sglang", Line(text="word " * 50, delay_ms=20)) as (engine, server, _info):
        stream = pull(engine, request())
        await anext(stream)
        await stream.aclose()
        await soon(lambda: bool(server.notices))
        assert server.notices == [{"rid": server.requests[0]["rid"]}]


async def test_sglang_knows_no_two_requests_by_names_of_which_one_begins_like_the_other() -> None:
    """It aborts every request whose name begins with the one that was told."""
    async with opened("sglang", Line(text="word " * 5)) as (engine, server, _info):
        await asyncio.gather(*(collect(engine, request()) for _ in range(8)))
        names = [body["rid"] for body in server.requests]
        assert all(name.startswith("req-1-") for name in names)
        assert not any(one != other and other.startswith(one) for one in names for other in names)
        assert len(set(names)) == 8
        assert not server.notices


async def test_sglang_gets_no_prompt_that_it_would_refuse() -> None:
    async with opened("sglang", Line(text="one")) as (engine, server, _info):
        error, _text = await fails(engine, request([100] * 994))
        assert (error.kind, "prompt is too long: 994 tokens > 993" in error.message) == ("context_overflow", True)
        await collect(engine, request([100] * 993))
        (body,) = server.requests
        assert body["sampling_params"]["max_new_tokens"] == 5


async def test_sglang_gets_no_id_that_its_model_does_not_have() -> None:
    """A single one would end the server."""
    ToyTokenizer().encode("many words that both sides know by the same ids")
    async with opened("sglang", Line(text="one"), known_ids=150) as (engine, server, info):
        assert any("not the server's" in warning for warning in info.warnings)
        error, _text = await fails(engine, request([149, 150]))
        assert (error.kind, "token id 150" in error.message) == ("invalid_request", True)
        assert not server.requests
        await collect(engine, request([100, 149]))
    async with opened("sglang", Line(text="one"), answers_detokenize=False) as (_engine, _server, info):
        assert any("could not be compared" in warning for warning in info.warnings)


async def test_vllm_tells_where_its_cache_events_are() -> None:
    told = {"publisher": "zmq", "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:6557", "topic": "kv"}
    async with opened("vllm", kv_event_sources={"0": told, "1": told}) as (_engine, _server, info):
        assert [source.endpoint for source in info.kv_events] == ["tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558"]
        assert [source.replay for source in info.kv_events] == ["tcp://127.0.0.1:6557", "tcp://127.0.0.1:6558"]
    async with opened("vllm") as (_engine, _server, info):
        assert info.kv_events == ()


async def test_sglang_tells_where_its_cache_events_are() -> None:
    told = '{"publisher":"zmq","endpoint":"tcp://*:5557","topic":"kv"}'
    async with opened("sglang", kv_events_config=told) as (_engine, _server, info):
        assert [source.endpoint for source in info.kv_events] == ["tcp://127.0.0.1:5557"]
    async with opened("sglang", kv_events_config="{no") as (_engine, _server, info):
        assert info.kv_events == ()


async def test_llamacpp_finds_the_ids_that_its_server_left_out() -> None:
    async with opened("llamacpp", Line(text="a😀b", burst=1)) as (engine, _server, _info):
        steps, completion = await collect(engine, request())
        assert ids_of(steps) == ToyTokenizer().encode("a😀b")
        assert completion.output_tokens == len(ids_of(steps)) + 1


async def test_connections_are_kept() -> None:
    async with opened("vllm") as (engine, _server, _info):
        for _ in range(5):
            await collect(engine, request())
        assert len(engine._streams) == 1


async def test_engines_are_created_from_their_specs() -> None:
    kinds = {
        "vllm": VLLMEngine,
        "sglang": SGLangEngine,
        "trtllm": TRTLLMEngine,
        "llamacpp": LlamaCppEngine,
        "openai": OpenAIEngine,
        "openai-raw": OpenAIEngine,
    }
    for name, kind in kinds.items():
        engine = create_engine(parse_spec(f"{name}:http://127.0.0.1:1"), TOKENIZER)
        assert type(engine) is kind
        assert engine.capabilities.yields == {"openai": "events", "openai-raw": "text"}.get(name, "tokens")


async def test_a_garbled_event_is_an_error() -> None:
    class Garbled(FakeVLLM):
        async def events(self, *_: Any) -> AsyncIterator[dict[str, Any] | str]:
            yield {"choices": [{"text": "ok", "token_ids": [1]}]}
            yield "{not json"

    server = Garbled(Line(text="x"), ToyTokenizer())
    engine = VLLMEngine(await server.start())
    await engine.start()
    error, _text = await fails(engine, request())
    assert error.kind == "internal"
    assert "cannot be read" in error.message
    await engine.close()
    await server.stop()


async def test_a_stream_that_just_ends_is_no_success() -> None:
    class Ending(FakeVLLM):
        async def events(self, *_: Any) -> AsyncIterator[dict[str, Any] | str]:
            yield {"choices": [{"text": "half", "token_ids": [1]}]}

    server = Ending(Line(text="x"), ToyTokenizer())
    engine = VLLMEngine(await server.start())
    await engine.start()
    error, text = await fails(engine, request())
    assert (error.kind, text) == ("disconnected", "half")
    await engine.close()
    await server.stop()
