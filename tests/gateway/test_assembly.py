"""Putting a gateway together: what is chosen, what is checked, and what an unusable setting is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

import turnwire.prompts
from tests.engines.servers import FakeVLLM
from tests.engines.toytokenizer import ToyTokenizer
from turnwire.engines.scripted.script import Line
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import _ENCODINGS, AssemblyError, assemble
from turnwire.parsers import Encoding, dialects
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import Conversation, Message, TextBlock

DATA = Path(turnwire.prompts.__file__).parent / "data"
FILES = {"tokenizer": str(DATA / "turnwire-tokenizer.json"), "template": str(DATA / "turnwire.jinja")}


@pytest.mark.parametrize(("model", "warned"), [("Qwen/Qwen3-Coder-480B-A35B-Instruct", True), ("unheard-of", False)])
async def test_the_engine_is_held_against_the_models_profile(model: str, warned: bool) -> None:
    server = FakeVLLM(Line(text="Hi."), ToyTokenizer(), window=1000)
    url = await server.start()
    try:
        runtime = await assemble(Settings(engine=f"vllm:{url}", model=model, dialect="qwen3_coder", **FILES))
        found = [warning for warning in runtime.info.warnings if "its window is 1,000 tokens" in warning]
        assert bool(found) == warned
        assert runtime.window == 1000
        await runtime.engine.close()
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"engine": "vlm:http://127.0.0.1:1"}, "vllm"),
        ({"engine": "vllm:http://127.0.0.1:1,sglang:http://127.0.0.1:2"}, "one kind"),
        ({"engine": "vllm:http://127.0.0.1:9", "model": "m", **FILES}, "cannot be used"),
        ({"dialect": "qwen3_codr"}, "qwen3_coder"),
        ({"template": "/does/not/exist"}, "/does/not/exist"),
        ({"template": "blank.jinja"}, "does not show what the user says"),
        ({"template": "broken.jinja"}, "does not compile"),
        ({"tokenizer": "/does/not/exist"}, "--tokenizer"),
        ({"seal_key": "short"}, "16 bytes"),
        ({"profiles": "/does/not/exist"}, "/does/not/exist"),
    ],
)
async def test_an_unusable_setting_says_what_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: dict[str, Any], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.jsonl").write_text('{"text": "Hi."}\n')
    (tmp_path / "blank.jinja").write_text("{% for m in conversations[0] %}{{ m.content }}{% endfor %}")
    (tmp_path / "broken.jinja").write_text("{% if %}")
    over = {"dialect": "hermes", **over}
    settings = {"engine": f"scripted:{tmp_path / 'script.jsonl'}", "model": "test-model"} | over
    with pytest.raises(AssemblyError) as raised:
        await assemble(Settings(**settings))
    assert words in str(raised.value)


async def test_nothing_is_guessed_silently(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "script.jsonl").write_text('{"text": "Hi."}\n')
    (tmp_path / "plain.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    settings = Settings(
        engine=f"scripted:{tmp_path / 'script.jsonl'}", model="unheard-of", template=str(tmp_path / "plain.jinja")
    )
    with caplog.at_level("WARNING", "turnwire.assembly"):
        runtime = await assemble(settings)
    assert runtime.dialect.name == "plain"
    assert any("name its dialect" in record.message for record in caplog.records)
    await runtime.engine.close()


async def test_a_dialect_may_be_a_file_of_the_operators(tmp_path: Path) -> None:
    (tmp_path / "script.jsonl").write_text('{"text": "Hi."}\n')
    (tmp_path / "acme.py").write_text(
        "from turnwire.parsers import Dialect, Reasoning\nDIALECTS = (Dialect(name='acme', reasoning=Reasoning()),)\n"
    )
    settings = Settings(engine=f"scripted:{tmp_path / 'script.jsonl'}", dialect=str(tmp_path / "acme.py"), **FILES)
    runtime = await assemble(settings)
    assert runtime.dialect.name == "acme"
    await runtime.engine.close()
    with pytest.raises(AssemblyError, match="There is no file"):
        await assemble(msgspec.structs.replace(settings, dialect=str(tmp_path / "none.py")))


def test_every_encoding_that_a_dialect_names_can_be_rendered() -> None:
    assert set(_ENCODINGS) == set(Encoding)
    assert {dialect.encoding for dialect in dialects()} - {None} == set(Encoding)


async def test_gpt_oss_is_served_without_a_template(tmp_path: Path) -> None:
    shutil.copy(FILES["tokenizer"], tmp_path / "tokenizer.json")
    (tmp_path / "script.jsonl").write_text('{"text": "Hi."}\n')
    settings = Settings(engine=f"scripted:{tmp_path / 'script.jsonl'}", model=str(tmp_path), dialect="gpt_oss")
    runtime = await assemble(settings)
    prompt = runtime.builder.build(
        Conversation(model="m", messages=(Message(role="user", blocks=(TextBlock(text="Hi."),)),))
    )
    assert "<|start|>user<|message|>Hi.<|end|>" in runtime.tokenizer.decode(list(prompt.ids))
    await runtime.engine.close()


async def test_every_end_token_of_the_model_stops_its_turns(tmp_path: Path) -> None:
    shutil.copy(FILES["tokenizer"], tmp_path / "tokenizer.json")
    shutil.copy(FILES["template"], tmp_path / "chat_template.jinja")
    special = load_tokenizer().special_tokens
    ends = [special["<|im_end|>"], special["</tool_call>"]]
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    (tmp_path / "script.jsonl").write_text('{"text": "Hi."}\n')
    script = f"scripted:{tmp_path / 'script.jsonl'}"
    runtime = await assemble(Settings(engine=script, model=str(tmp_path), dialect="qwen3_coder"))
    assert sorted(runtime.stop_token_ids) == sorted(ends)
    await runtime.engine.close()
