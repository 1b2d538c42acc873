"""Servers that answer GETs and short POSTs from a table, as the real ones were recorded or documented to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

__all__ = ["RECORDED", "recorded_server"]

SHOWN = {"template": "{{ .Prompt }}", "parameters": 'num_ctx                        16384\nstop "<|im_end|>"'}

RECORDED: dict[str, dict[str, Any]] = {
    "vllm": {
        "/version": {"version": "0.32.0"},
        "/v1/models": {"data": [{"id": "tiny", "owned_by": "vllm", "root": "maker/tiny", "max_model_len": 4096}]},
    },
    "sglang": {
        "/v1/models": {"data": [{"id": "tiny", "owned_by": "sglang", "root": "tiny", "max_model_len": 4096}]},
        "/get_model_info": {"model_path": "/srv/tiny", "tokenizer_path": "/srv/tiny-tokenizer", "is_generation": True},
        "/api/tags": {"models": [{"name": "tiny", "digest": "sha256:sglang0001", "details": {"format": "sglang"}}]},
    },
    "trtllm": {
        "/version": {"version": "1.2.1"},
        "/v1/models": {"data": [{"id": "tiny", "owned_by": "tensorrt_llm"}]},
    },
    "llamacpp": {
        "/props": {
            "default_generation_settings": {"n_ctx": 2048},
            "chat_template": "{{ messages }}",
            "model_path": "/srv/tiny.gguf",
            "model_alias": "tiny",
            "modalities": {"vision": False},
        },
        "/v1/models": {"data": [{"id": "tiny", "owned_by": "llamacpp", "meta": {"n_ctx": 2048}}]},
    },
    "ollama": {
        "/": "Ollama is running",
        "/api/version": {"version": "0.40.1"},
        "/api/tags": {
            "models": [
                {"name": "qwen3:8b", "model": "qwen3:8b", "capabilities": ["completion", "tools", "thinking"]},
                {"name": "nomic-embed-text:latest", "capabilities": ["embedding"]},
            ]
        },
        "/api/ps": {"models": []},
        "/api/show": SHOWN,
        "/v1/models": {"data": [{"id": "qwen3:8b", "owned_by": "library"}, {"id": "nomic-embed-text:latest"}]},
    },
    "lmstudio": {
        "/api/v0/models": {
            "data": [
                {
                    "id": "qwen3-8b",
                    "type": "llm",
                    "state": "loaded",
                    "max_context_length": 40960,
                    "loaded_context_length": 8192,
                },
                {"id": "other", "type": "llm", "state": "not-loaded", "max_context_length": 40960},
                {"id": "embed", "type": "embeddings", "state": "loaded", "max_context_length": 2048},
            ]
        },
        "/v1/models": {"data": [{"id": "qwen3-8b"}, {"id": "other"}, {"id": "embed"}]},
    },
    "nim": {
        "/v1/metadata": {"version": "2.0.0", "modelInfo": [{"shortName": "nemotron", "modelUrl": "ngc://x"}]},
        "/v1/models": {"data": [{"id": "nvidia/nemotron", "owned_by": "vllm", "max_model_len": 131072}]},
    },
    "litellm": {
        "/health/liveliness": "I'm alive!",
        "/model/info": {"data": [{"model_name": "smart", "litellm_params": {"model": "openai/gpt"}}]},
        "/v1/models": {"data": [{"id": "smart", "owned_by": "openai", "max_input_tokens": 200000}]},
    },
    "openrouter": {
        "/v1/models": {
            "data": [{"id": "maker/large", "context_length": 262144, "pricing": {"prompt": "0.1"}, "name": "Large"}]
        },
    },
    "turnwire": {
        "/v1/models": {"data": [{"id": "tiny", "owned_by": "turnwire", "context_length": 9000}]},
    },
    "anthropic": {
        "/v1/models": {"data": [{"id": "claude-x", "type": "model", "display_name": "Claude X"}]},
    },
    "openai": {"/v1/models": {"object": "list", "data": [{"id": "gpt-x", "object": "model", "owned_by": "system"}]}},
}


@asynccontextmanager
async def recorded_server(answers: Mapping[str, Any], *, key: str | None = None) -> AsyncIterator[str]:
    """A server on loopback that answers from the table; with a key it refuses whoever comes without."""

    async def answer(request: web.Request) -> web.Response:
        if key is not None and request.headers.get("Authorization") != f"Bearer {key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        if request.path not in answers:
            return web.json_response({"detail": "Not Found"}, status=404)
        said = answers[request.path]
        return web.Response(text=said) if isinstance(said, str) else web.json_response(said)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
