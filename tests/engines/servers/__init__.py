"""Small servers that speak the wire formats of vLLM, SGLang, TensorRT-LLM and llama.cpp, playing one script line.

They answer what the real servers' sources and documentation say: field by field, with the end token among the ids, the
text cut as those engines cut it, and their own words for each failure.
"""

from __future__ import annotations

import asyncio
import json
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from turnwire.engines.interface import TokenBatch
from turnwire.engines.scripted.prefix_cache_model import PrefixCache
from turnwire.engines.scripted.script import Line, Performance, Script
from turnwire.turns import Sampling

from ..toytokenizer import ToyTokenizer

EOS = "<|im_end|>"

OVERFLOW = {
    "vllm": "This model's maximum context length is 64 tokens. However, your request has 99 input tokens.",
    "sglang": "The input (99 tokens) is longer than the model's context length (64 tokens).",
    "trtllm": "The sum of prompt length (99.0), query length (0) should not exceed max_num_tokens (64)",
    "llamacpp": "request (99 tokens) exceeds the available context size (64 tokens), try increasing it",
}
REFUSALS: dict[str, tuple[int, str]] = {
    "overloaded": (503, "The request queue is full."),
    "invalid_request": (400, "temperature must be non-negative"),
    "internal": (500, "EngineCore encountered an issue."),
}


class FakeServer:
    """Plays `line` to every generation. `requests` are the JSON bodies received; `aborts` counts streams whose client
    left; `header_delay` holds the response's head back."""

    kind = ""

    def __init__(self, line: Line, tokenizer: ToyTokenizer, *, window: int | None = 1000) -> None:
        self.line = line
        self.tokenizer = tokenizer
        self.window = window
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.aborts = 0
        self.aborted = asyncio.Event()
        self.entered = asyncio.Event()
        self.notices: list[dict[str, Any]] = []
        self.header_delay = 0.0
        self.glue = False
        self.cache = PrefixCache()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, port: int = 0) -> str:
        app = web.Application(client_max_size=1 << 26)
        self.routes(app.router)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self.url

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # ------------------------------------------------------------------------------------- what differs

    @abstractmethod
    def routes(self, router: web.UrlDispatcher) -> None: ...

    @abstractmethod
    def asked(self, body: dict[str, Any]) -> tuple[list[int], Sampling]:
        """The prompt and the limits in a request body."""

    @abstractmethod
    def events(
        self, body: dict[str, Any], performance: Performance, prompt: list[int], cached: int
    ) -> AsyncIterator[dict[str, Any] | str]:
        """The events of a stream; a string is sent as the payload itself."""

    def refusal(self, status: int, message: str, kind: str) -> web.Response:
        return web.json_response({"error": {"message": message, "type": kind, "code": status}}, status=status)

    def stream_error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": "InternalServerError", "code": status}}

    # ------------------------------------------------------------------------------------ what is common

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(request.headers)
        prompt, sampling = self.asked(body)
        line = self.line
        if not body.get("stream"):
            return self.whole(body, prompt)
        self.entered.set()
        try:
            if self.header_delay:
                await asyncio.sleep(self.header_delay)
            if line.finish == "error" and line.after == 0:
                if line.error == "context_overflow":
                    return self.refusal(400, OVERFLOW[self.kind], "BadRequestError")
                status, message = REFUSALS[line.error]
                return self.refusal(status, message, line.error)
            if line.finish == "disconnect" and line.after == 0:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            return await self._stream(request, body, prompt, sampling)
        except (asyncio.CancelledError, ConnectionError):
            self.aborts += 1
            self.aborted.set()
            raise

    async def _stream(
        self, request: web.Request, body: dict[str, Any], prompt: list[int], sampling: Sampling
    ) -> web.StreamResponse:
        line = self.line
        performance = Script([line], self.tokenizer).perform(line, sampling)
        sequence = self.cache.sequence(prompt)
        cached = self.cache.match(sequence)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if line.first_delay_ms:
            await asyncio.sleep(line.first_delay_ms / 1000)
        self.cache.store(sequence)
        glued = b""
        async for event in self.events(body, performance, prompt, cached):
            data = b"data: " + (event if isinstance(event, str) else json.dumps(event)).encode() + b"\n\n"
            if self.glue:
                glued += data
                continue
            await response.write(data)
            if line.delay_ms:
                await asyncio.sleep(line.delay_ms / 1000)
        if glued:
            await response.write(glued)
        if performance.reason is None:
            if line.finish == "hang":
                await asyncio.sleep(3600)
            if line.finish == "disconnect":
                await asyncio.sleep(0.02)
                assert request.transport is not None
                request.transport.abort()
                return response
            status, message = REFUSALS[line.error]
            await response.write(b"data: " + json.dumps(self.stream_error(status, message)).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def whole(self, body: dict[str, Any], prompt: list[int]) -> web.Response:
        raise web.HTTPBadRequest(text="only streams here")

    def batches(self, performance: Performance) -> list[tuple[TokenBatch, bool]]:
        """The batches with the end token added to the last of a plain stop, each with whether it is the last."""
        batches = list(performance.batches)
        if performance.reason == "stop":
            eos = self.tokenizer.special_tokens[EOS]
            last = batches.pop() if batches else TokenBatch("")
            batches.append(TokenBatch(last.text, (*last.ids, eos)))
        final = performance.reason is not None
        return [(batch, final and number == len(batches)) for number, batch in enumerate(batches, 1)]

    def sampled(self, performance: Performance) -> int:
        return len(performance.ids) + (performance.reason == "stop")


class FakeVLLM(FakeServer):
    kind = "vllm"
    version = "0.32.0"
    tells_cached = True
    priorities = True
    caching = True
    native = False
    kv_event_sources: dict[str, Any] | None = None

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/completions", self.generate)
        router.add_post("/inference/v1/generate", self.generate_native)
        router.add_get("/health", _always(dict))
        router.add_get("/version", _always(lambda: {"version": self.version}))
        router.add_get("/metrics", self.metrics)
        if self.kv_event_sources is not None:
            router.add_get("/kv_event_sources", _always(lambda: self.kv_event_sources))
        router.add_get(
            "/v1/models",
            _always(lambda: {"object": "list", "data": [{"id": "toy", "max_model_len": self.window}]}),
        )

    async def generate_native(self, request: web.Request) -> web.StreamResponse:
        if not self.native:
            return self.refusal(403, "This endpoint needs --enable-scale-out.", "Forbidden")
        return await self.generate(request)

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            text=f'vllm:cache_config_info{{block_size="16",enable_prefix_caching="{self.caching}"}} 1.0\n'
        )

    def asked(self, body: dict[str, Any]) -> tuple[list[int], Sampling]:
        options = body.get("sampling_params", body)
        limits = Sampling(max_tokens=options.get("max_tokens"), stop=tuple(options.get("stop") or ()))
        return body["token_ids"] if "token_ids" in body else body["prompt"], limits

    def whole(self, body: dict[str, Any], prompt: list[int]) -> web.Response:
        if "token_ids" in body:
            choice = {"index": 0, "text": "x", "token_ids": [120], "finish_reason": "length"}
            return web.json_response({"choices": [choice], "output_mode": "text"})
        if body.get("priority") and not self.priorities:
            return self.refusal(400, "Got priority 1 but Priority scheduling is not enabled.", "BadRequestError")
        usage: dict[str, Any] = {"prompt_tokens": len(prompt), "completion_tokens": 1}
        if self.tells_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": 0}
        return web.json_response({"choices": [{"index": 0, "text": "x", "finish_reason": "length"}], "usage": usage})

    async def events(
        self, body: dict[str, Any], performance: Performance, prompt: list[int], cached: int
    ) -> AsyncIterator[dict[str, Any] | str]:
        assert body.get("return_token_ids") is True or body["output_mode"] == "text"
        assert body.get("sampling_params", body)["skip_special_tokens"] is False
        first = "prompt" in body
        for batch, final in self.batches(performance):
            choice: dict[str, Any] = {
                "index": 0,
                "text": batch.text,
                "logprobs": None,
                "finish_reason": None,
                "stop_reason": None,
                "token_ids": list(batch.ids),
            }
            if first:
                choice["prompt_token_ids"], first = prompt, False
            if body.get("logprobs") is not None:
                texts = [self.tokenizer.decode([token]) for token in batch.ids]
                choice["logprobs"] = {
                    "text_offset": [0] * len(texts),
                    "tokens": texts,
                    "token_logprobs": [-0.5] * len(texts),
                    "top_logprobs": [{text: -0.5, "rival": -1.5} for text in texts],
                }
            if final:
                stop = performance.reason == "stop_sequence"
                choice["finish_reason"] = "stop" if stop else performance.reason
                choice["stop_reason"] = performance.stop_sequence
            yield {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "toy", "choices": [choice]}
        if performance.reason is not None:
            usage: dict[str, Any] = {
                "prompt_tokens": len(prompt),
                "completion_tokens": self.sampled(performance),
                "total_tokens": 0,
            }
            if self.tells_cached:
                usage["prompt_tokens_details"] = {"cached_tokens": cached}
            yield {
                "id": "cmpl-1",
                "object": "text_completion",
                "created": 1,
                "model": "toy",
                "choices": [],
                "usage": usage,
            }


class FakeSGLang(FakeServer):
    kind = "sglang"
    incremental = True
    low_first = False
    tokenizer_path = "toy"
    known_ids: int | None = None
    answers_detokenize = True
    kv_events_config: str | None = None

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/generate", self.generate)
        router.add_post("/abort_request", self.abort)
        router.add_post("/detokenize", self.detokenize)
        router.add_get("/health", _always(dict))
        router.add_get("/v1/models", _always(lambda: {"data": [{"id": "toy", "max_model_len": self.window}]}))
        router.add_get("/get_model_info", _always(self.model_info))
        router.add_get(
            "/server_info",
            _always(
                lambda: {
                    "version": "0.5.23",
                    "enable_priority_scheduling": True,
                    "schedule_low_priority_values_first": self.low_first,
                    "disable_radix_cache": False,
                    "incremental_streaming_output": self.incremental,
                    "kv_events_config": self.kv_events_config,
                    "model_path": "toy",
                }
            ),
        )

    def model_info(self) -> dict[str, Any]:
        return {"model_path": "toy", "tokenizer_path": self.tokenizer_path, "is_generation": True}

    async def abort(self, request: web.Request) -> web.Response:
        self.notices.append(await request.json())
        return web.Response()

    async def detokenize(self, request: web.Request) -> web.Response:
        if not self.answers_detokenize:
            raise web.HTTPNotFound
        known = self.tokenizer.vocab_size if self.known_ids is None else self.known_ids
        tokens = [token for (token,) in (await request.json())["tokens"]]
        texts = [self.tokenizer.decode([token]) if token < known else "" for token in tokens]
        return web.json_response({"text": texts})

    def asked(self, body: dict[str, Any]) -> tuple[list[int], Sampling]:
        params = body["sampling_params"]
        return body["input_ids"], Sampling(
            max_tokens=params.get("max_new_tokens"), stop=tuple(params.get("stop") or ())
        )

    def refusal(self, status: int, message: str, kind: str) -> web.Response:
        return web.json_response({"error": {"message": message}}, status=status)

    def stream_error(self, status: int, message: str) -> dict[str, Any]:
        reason = {"type": "abort", "message": message, "status_code": status, "err_type": None}
        return {"text": "", "output_ids": [], "meta_info": {"id": "1", "finish_reason": reason, "prompt_tokens": 1}}

    async def events(
        self, body: dict[str, Any], performance: Performance, prompt: list[int], cached: int
    ) -> AsyncIterator[dict[str, Any] | str]:
        text, ids = "", list[int]()
        for batch, final in self.batches(performance):
            text, ids = text + batch.text, ids + list(batch.ids)
            reason: dict[str, Any] | None = None
            if final and performance.reason == "length":
                reason = {"type": "length", "length": len(ids)}
            elif final:
                reason = {"type": "stop", "matched": performance.stop_sequence or ids[-1]}
            told = batch.ids if self.incremental else ids
            meta = {
                "id": body["rid"],
                "finish_reason": reason,
                "prompt_tokens": len(prompt),
                "weight_version": "default",
                "completion_tokens": len(ids),
                "cached_tokens": cached,
            }
            if body.get("return_logprob"):
                meta["output_token_logprobs"] = [(-0.5, token, self.tokenizer.decode([token])) for token in told]
                meta["output_top_logprobs"] = [[(-0.5, token, "top")] for token in told]
            yield {"text": batch.text if self.incremental else text, "output_ids": list(told), "meta_info": meta}


class FakeTRTLLM(FakeServer):
    kind = "trtllm"

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/completions", self.generate)
        router.add_get("/health", _always(dict))
        router.add_get("/version", _always(lambda: {"version": "1.2.0"}))
        router.add_get("/v1/models", _always(lambda: {"data": [{"id": "toy"}]}))

    def asked(self, body: dict[str, Any]) -> tuple[list[int], Sampling]:
        known = {
            "model", "prompt", "max_tokens", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "seed",
            "frequency_penalty", "repetition_penalty", "stop", "stop_token_ids", "include_stop_str_in_output", "stream",
            "stream_options", "detokenize", "add_special_tokens", "logprobs", "logit_bias", "priority",
            "response_format",
        }  # fmt: skip
        unknown = set(body) - known
        if unknown:
            raise web.HTTPBadRequest(text=f"Extra inputs are not permitted: {unknown}")
        return body["prompt"], Sampling(max_tokens=body.get("max_tokens"), stop=tuple(body.get("stop") or ()))

    def refusal(self, status: int, message: str, kind: str) -> web.Response:
        return web.json_response({"object": "error", "message": message, "type": kind, "code": status}, status=status)

    def stream_error(self, status: int, message: str) -> dict[str, Any]:
        return {"object": "error", "message": message, "type": "InternalServerError", "code": status}

    async def events(
        self, body: dict[str, Any], performance: Performance, prompt: list[int], cached: int
    ) -> AsyncIterator[dict[str, Any] | str]:
        assert body["detokenize"] is False
        generated = 0
        for batch, final in self.batches(performance):
            generated += len(batch.ids)
            usage = {
                "prompt_tokens": len(prompt),
                "completion_tokens": generated,
                "total_tokens": 0,
                "prompt_tokens_details": {"cached_tokens": cached},
            }
            choice: dict[str, Any] = {
                "index": 0,
                "text": "",
                "token_ids": list(batch.ids),
                "logprobs": None,
                "finish_reason": None,
                "stop_reason": None,
            }
            if body.get("logprobs"):
                texts = [self.tokenizer.decode([token]) for token in batch.ids]
                choice["logprobs"] = {
                    "text_offset": [],
                    "tokens": texts,
                    "token_logprobs": [-0.5] * len(texts),
                    "top_logprobs": [{text: -0.5} for text in texts],
                }
            if final:
                choice["finish_reason"] = "length" if performance.reason == "length" else "stop"
                choice["stop_reason"] = performance.stop_sequence
            yield {"id": "cmpl-1", "object": "text_completion", "model": "toy", "choices": [choice], "usage": usage}
            if final:
                yield {"id": "cmpl-1", "object": "text_completion", "model": "toy", "choices": [], "usage": usage}


class FakeLlamaCpp(FakeServer):
    kind = "llamacpp"

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/completion", self.generate)
        router.add_get("/health", _always(lambda: {"status": "ok"}))
        router.add_get("/props", _always(self.props))

    def props(self) -> dict[str, Any]:
        return {
            "default_generation_settings": {"n_ctx": self.window},
            "model_alias": "toy",
            "build_info": "b1-abc",
            "total_slots": 4,
        }

    def asked(self, body: dict[str, Any]) -> tuple[list[int], Sampling]:
        assert "stop" not in body, "stop strings are ours to find"
        limit = body.get("n_predict", -1)
        return body["prompt"], Sampling(max_tokens=None if limit < 0 else limit)

    def refusal(self, status: int, message: str, kind: str) -> web.Response:
        error = {
            "code": status,
            "message": message,
            "type": "exceed_context_size_error" if "context" in message else kind,
        }
        return web.json_response({"error": error}, status=status)

    async def events(
        self, body: dict[str, Any], performance: Performance, prompt: list[int], cached: int
    ) -> AsyncIterator[dict[str, Any] | str]:
        total = len(prompt)
        progress = {"total": total, "cache": cached, "processed": total, "time_ms": 1}
        yield {"content": "", "tokens": [], "stop": False, "tokens_predicted": 0, "prompt_progress": progress}
        predicted, held = 0, ""
        # One token per event; control tokens are hidden, and of tokens that make one character only the last is told.
        for batch, _ in self.batches(performance):
            for token in batch.ids:
                predicted += 1
                raw = held.encode("latin-1") + self.tokenizer.bytes_of(token)
                try:
                    content = raw.decode()
                except UnicodeDecodeError:
                    held = raw.decode("latin-1")
                    continue
                held = ""
                event: dict[str, Any] = {
                    "index": 0,
                    "content": "" if content == EOS else content,
                    "tokens": [token],
                    "stop": False,
                    "id_slot": -1,
                    "tokens_predicted": predicted,
                    "tokens_evaluated": total,
                }
                if body.get("n_probs"):
                    rival = {"id": token, "token": content, "bytes": [], "logprob": -0.5}
                    event["completion_probabilities"] = [{**rival, "top_logprobs": [rival]}]
                yield event
        if performance.reason is not None:
            yield {
                "index": 0,
                "content": "",
                "tokens": [],
                "stop": True,
                "model": "toy",
                "tokens_predicted": predicted,
                "tokens_evaluated": total,
                "stop_type": "eos" if performance.reason == "stop" else "limit",
                "stopping_word": "",
                "tokens_cached": total,
                "timings": {"cache_n": cached, "prompt_n": total - cached, "predicted_n": predicted},
            }


class FakeChat(FakeServer):
    """A Chat Completions server that says the script's text as `content`, or `deltas` where they are given."""

    kind = "vllm"
    deltas: list[dict[str, Any]] | None = None
    finish = "stop"

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/chat/completions", self.generate)
        router.add_post("/v1/embeddings", self.embeddings)
        router.add_get("/v1/models", _always(lambda: {"data": [{"id": "toy", "max_model_len": self.window}]}))

    async def embeddings(self, request: web.Request) -> web.Response:
        body = await request.json()
        data = [{"index": at, "embedding": [float(len(text)), 1.0]} for at, text in enumerate(body["input"])]
        return web.json_response({"data": data[::-1], "usage": {"prompt_tokens": 7 * len(data), "total_tokens": 0}})

    def asked(self, body: dict[str, Any]) -> tuple[list[int], Sampling]:
        words = "".join(str(message["content"]) for message in body["messages"])
        limit = body.get("max_tokens")
        return list(words.encode()) * 40, Sampling(max_tokens=limit, stop=tuple(body.get("stop") or ()))

    async def events(
        self, body: dict[str, Any], performance: Performance, prompt: list[int], cached: int
    ) -> AsyncIterator[dict[str, Any] | str]:
        yield {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
        deltas = self.deltas
        if deltas is None:
            deltas = [{"content": batch.text} for batch in performance.batches]
        for delta in deltas:
            choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None}
            if body.get("logprobs") and "content" in delta:
                rival = {"token": delta["content"], "logprob": -0.5, "bytes": None}
                choice["logprobs"] = {"content": [{**rival, "top_logprobs": [rival]}]}
            yield {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]}
        if performance.reason is not None:
            reason = "length" if performance.reason == "length" else self.finish
            choice = {"index": 0, "delta": {}, "finish_reason": reason, "stop_reason": performance.stop_sequence}
            yield {"id": "chatcmpl-1", "choices": [choice]}
            usage = {
                "prompt_tokens": 80,
                "completion_tokens": len(performance.ids),
                "prompt_tokens_details": {"cached_tokens": 64 if cached else 0},
                "completion_tokens_details": {"reasoning_tokens": 7},
            }
            yield {"id": "chatcmpl-1", "choices": [], "usage": usage}


class FakeResponses(FakeChat):
    """A Responses server that says the script's text as one message item, or `items` where they are given."""

    items: list[dict[str, Any]] | None = None

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/responses", self.generate)
        router.add_get("/v1/models", _always(lambda: {"data": [{"id": "toy", "max_model_len": self.window}]}))

    def asked(self, body: dict[str, Any]) -> tuple[list[int], Sampling]:
        return list(json.dumps(body["input"]).encode()) * 4, Sampling(max_tokens=body.get("max_output_tokens"))

    def stream_error(self, status: int, message: str) -> dict[str, Any]:
        error = {"code": "server_error", "message": message}
        return {"type": "response.failed", "response": {"status": "failed", "error": error}}

    async def events(
        self, body: dict[str, Any], performance: Performance, prompt: list[int], cached: int
    ) -> AsyncIterator[dict[str, Any] | str]:
        yield {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}
        for event in self.items or ():
            yield event
        if self.items is None:
            yield {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "m"}}
            for batch in performance.batches:
                yield {"type": "response.output_text.delta", "output_index": 0, "delta": batch.text}
            if performance.reason is not None:
                yield {"type": "response.output_item.done", "output_index": 0, "item": {"type": "message", "id": "m"}}
        if performance.reason is not None:
            usage = {
                "input_tokens": 80,
                "output_tokens": len(performance.ids),
                "input_tokens_details": {"cached_tokens": 64 if cached else 0},
                "output_tokens_details": {"reasoning_tokens": 7},
            }
            response: dict[str, Any] = {"id": "resp_1", "status": "completed", "usage": usage}
            if performance.reason == "length":
                response |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
            yield {"type": f"response.{response['status']}", "response": response}


def _always(body: Callable[[], dict[str, Any]]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(body())

    return answer
