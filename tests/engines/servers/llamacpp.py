"""A server with llama.cpp's wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from turnwire.engines.scripted.script import Performance
from turnwire.turns import Sampling

from .server import EOS, FakeServer, always


class FakeLlamaCpp(FakeServer):
    kind = "llamacpp"

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/completion", self.generate)
        router.add_get("/health", always(lambda: {"status": "ok"}))
        router.add_get("/props", always(self.props))

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
