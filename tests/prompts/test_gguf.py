"""GGUF files: what they say of their model, the tokenizer in them, and every damage told apart from it."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shipped_tokenizer import OWN, PROSE, SAMPLES, shipped

from turnwire.prompts.tokenizers.gguf import from_gguf_metadata
from turnwire.prompts.tokenizers.gguf_file import GGUFError
from turnwire.prompts.tokenizers.load import TokenizerError, load_tokenizer, read_gguf


def gguf_value(value: Any) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<Ii", 5, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + gguf_string(value)
        case list():
            inner = [gguf_value(item) for item in value]
            return struct.pack("<I", 9) + inner[0][:4] + struct.pack("<Q", len(value)) + b"".join(i[4:] for i in inner)
    raise TypeError(value)


def gguf_string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf(metadata: dict[str, Any], *, version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, 7, len(metadata))
    return head + b"".join(gguf_string(key) + gguf_value(value) for key, value in metadata.items())


def own_metadata() -> dict[str, Any]:
    model = shipped()["model"]
    tokens = [""] * OWN.vocab_size
    kinds = [1] * OWN.vocab_size
    for token, id_ in model["vocab"].items():
        tokens[id_] = token
    for text, id_ in OWN.special_tokens.items():
        tokens[id_] = text
        kinds[id_] = 3 if text.startswith("<|") else 4
    return {
        "general.architecture": "own",
        "general.name": "Own Model",
        "own.context_length": 4096,
        "own.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "turnwire",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": "{{ messages }}",
        "tokenizer.chat_template.tool_use": "{{ tools }}",
    }


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "own.gguf"
    path.write_bytes(gguf(own_metadata()) + b"weights, never read")
    return path


def test_gguf_facts(model_file: Path) -> None:
    facts = read_gguf(model_file)
    assert (facts.name, facts.architecture, facts.window) == ("Own Model", "own", 4096)
    assert (facts.bos_id, facts.eos_id) == (1, 2)
    assert facts.chat_template == "{{ messages }}"
    assert facts.chat_templates == {"tool_use": "{{ tools }}"}
    assert facts.metadata["own.rope.freq_base"] == 10000.0


def test_the_tokenizer_in_a_gguf_file(model_file: Path) -> None:
    found = load_tokenizer(model_file)
    assert found.special_tokens == OWN.special_tokens
    for text in (*SAMPLES, PROSE):
        assert found.encode(text) == OWN.encode(text)
    assert found.decode(found.encode(SAMPLES[2]), skip_special=True) == OWN.decode(
        OWN.encode(SAMPLES[2]), skip_special=True
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "llama"}, "of kind 'llama'.*tokenizer.json"),
        ({"tokenizer.ggml.pre": "falcon"}, "splits words as 'falcon'"),
        ({"tokenizer.ggml.tokens": ["a b"], "tokenizer.ggml.token_type": [1]}, "not spelled in bytes"),
        ({"tokenizer.ggml.merges": 3}, "no tokenizer.ggml.merges"),
        ({"tokenizer.ggml.merges": ["Ġnosuch thing"]}, "do not fit together"),
    ],
)
def test_gguf_tokenizers_that_are_not_read(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        from_gguf_metadata(own_metadata() | change)


SMALL = gguf({"general.name": "m", "list": ["a", "b"], "deep": [[1, 2], [3]], "yes": True, "n": -5})


def test_gguf_values(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(SMALL)
    assert read_gguf(path).metadata == {
        "general.name": "m",
        "list": ["a", "b"],
        "deep": [[1, 2], [3]],
        "yes": True,
        "n": -5,
    }


@given(st.integers(0, len(SMALL)), st.integers(0, 255), st.integers(0, len(SMALL)))
def test_damaged_gguf_files_are_refused(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int, end: int) -> None:
    damaged = bytearray(SMALL)
    if at < len(damaged):
        damaged[at] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(bytes(damaged[:end]))
    with suppress(GGUFError):
        read_gguf(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GGML", "does not start with GGUF"),
        (gguf({}, version=1), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**40), "metadata keys"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**40), "bytes in a string"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_string("k") + struct.pack("<IIQ", 9, 4, 2**30),
            "items in an array",
        ),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_string("k") + struct.pack("<I", 77), "unknown kind 77"),
        (
            b"GGUF"
            + struct.pack("<IQQ", 3, 0, 1)
            + gguf_string("k")
            + struct.pack("<I", 9)
            + struct.pack("<IQ", 9, 1) * 9,
            "too deep",
        ),
    ],
)
def test_lying_gguf_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(GGUFError, match=message):
        read_gguf(path)


def test_big_endian_gguf(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    name = b"general.name"
    path.write_bytes(b"GGUF" + struct.pack(">IQQQ", 3, 0, 1, len(name)) + name + struct.pack(">IQ", 8, 3) + b"Own")
    assert read_gguf(path).name == "Own"
