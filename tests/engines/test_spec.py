"""Engine specs: what is understood, and what the refusals say."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwire.engines.interface import Engine
from turnwire.engines.spec import EngineSpec, SpecError, create_engine, parse_spec

from .toytokenizer import ToyTokenizer


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("scripted:turns.jsonl", EngineSpec("scripted", "turns.jsonl")),
        ("scripted:C:\\turns.jsonl", EngineSpec("scripted", "C:\\turns.jsonl")),
        ("embedded", EngineSpec("embedded")),
        ("embedded:/models/x.gguf", EngineSpec("embedded", "/models/x.gguf")),
        ("http://host:8000/v1/", EngineSpec("auto", "http://host:8000/v1")),
        ("localhost:11434", EngineSpec("auto", "http://localhost:11434")),
        ("10.0.0.5:8000", EngineSpec("auto", "http://10.0.0.5:8000")),
        ("ollama", EngineSpec("ollama", "http://127.0.0.1:11434")),
        ("openrouter", EngineSpec("openrouter", "https://openrouter.ai/api/v1")),
        ("litellm:proxy:4000", EngineSpec("litellm", "http://proxy:4000")),
        ("vllm:http://host:8000", EngineSpec("vllm", "http://host:8000")),
        ("vllm:host:8000/", EngineSpec("vllm", "http://host:8000")),
        ("vllm-core:tcp://127.0.0.1:29550", EngineSpec("vllm-core", "tcp://127.0.0.1:29550")),
        ("vllm-core:gpu-1:29550/", EngineSpec("vllm-core", "tcp://gpu-1:29550")),
        ("sglang:http://[::1]:30000", EngineSpec("sglang", "http://[::1]:30000")),
        ("trtllm:https://host/path/", EngineSpec("trtllm", "https://host/path")),
        ("llamacpp:http://host:8080", EngineSpec("llamacpp", "http://host:8080")),
        ("openai:https://api.example.com/v1", EngineSpec("openai", "https://api.example.com/v1")),
        ("openai-raw:http://host/v1", EngineSpec("openai-raw", "http://host/v1")),
    ],
)
def test_known_specs(text: str, spec: EngineSpec) -> None:
    assert parse_spec(text) == spec
    assert parse_spec(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("vlm:http://x", "did you mean vllm"),
        ("llama.cpp:http://x", "did you mean llamacpp"),
        ("open-ai:http://x", "openai"),
        ("zzz", "known engines: embedded, scripted"),
        ("", "known engines"),
        ("scripted", "scripted:FILE"),
        ("vllm", "vllm:http://127.0.0.1:8000"),
        ("vllm:ftp://x", "http"),
        ("vllm:http://", "not an http"),
        ("vllm:http://x:99999", "not an http"),
        ("openai:http://x?key=1", "no query"),
        ("vllm-core", "vllm-core:tcp://"),
        ("vllm-core:http://x:1", "vllm-core:tcp://"),
        ("vllm-core:tcp://x", "--data-parallel-rpc-port"),
        ("vllm-core:tcp://0.0.0.0:29550", "can connect to"),
        ("vllm-core:tcp://x:65535", "can connect to"),
    ],
)
def test_refusals_say_what_to_write(text: str, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        parse_spec(text)


async def test_scripted_is_created_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text('{"text": "hi"}')
    engine = create_engine(parse_spec(f"scripted:{file}"), ToyTokenizer())
    assert isinstance(engine, Engine)
    assert (await engine.start()).name == "scripted"
    with pytest.raises(SpecError, match="tokenizer"):
        create_engine(parse_spec(f"scripted:{file}"), None)


def test_the_engine_core_needs_a_tokenizer() -> None:
    spec = parse_spec("vllm-core:tcp://127.0.0.1:29550")
    with pytest.raises(SpecError, match="tokenizer"):
        create_engine(spec, None)
    assert isinstance(create_engine(spec, ToyTokenizer()), Engine)
