"""What a capture holds, what it leaves out, and what it costs while it is off."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from turnwire.capture.format import CaptureError, DoneStep, TokenStep, encode_line
from turnwire.capture.reading import Capture, read_capture, read_lines
from turnwire.gateway.settings import SettingsError
from turnwire.gateway.telemetry.capture_files import SUFFIX
from turnwire.gateway.telemetry.capturing import CaptureRules

from ..gateway.conftest import Client, Serve
from . import conversations
from .conversations import LINES

KEY = "sk-ant-api03-" + "a1B2" * 12


def captured(client: Client, folder: Path) -> Capture:
    """Everything that was captured so far."""
    assert client.gateway.capturing is not None
    client.gateway.capturing.close()
    files = sorted(folder.glob(f"*{SUFFIX}"))
    return read_capture(*[io.BytesIO(path.read_bytes()) for path in files])


async def test_a_capture_holds_all_that_a_turn_was(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    client = await serve(*LINES, capture=str(folder))
    await conversations.messages(client, **{"x-api-key": KEY, "x-claude-code-session-id": "s-1"})
    capture = captured(client, folder)
    assert [turn.session for turn in capture.turns] == ["s-1"] * 3
    first, second, _ = capture.turns
    runtime = client.gateway.runtimes[0]
    assert runtime.tokenizer.decode(first.prompt.ids).count("What is in /a and /b?") == 1
    assert [step for step in first.steps if isinstance(step, DoneStep)]
    assert first.text == LINES[0]["text"]
    batches = [step for step in first.steps if isinstance(step, TokenStep)]
    assert [token for step in batches for token in step.ids] == first.output_ids
    assert second.prompt.ids[: len(first.prompt.ids)] == first.prompt.ids
    assert json.loads(first.request.body)["system"] == "You list files."
    assert first.answered.startswith("event: message_start")
    assert [at for at, _ in first.answer] == sorted(at for at, _ in first.answer)
    (model,) = capture.head.models
    assert (model.id, model.dialect) == ("test-model", "qwen3_coder")
    assert oct((folder / os.listdir(folder)[0]).stat().st_mode & 0o777) == "0o600"


async def test_secrets_are_replaced_everywhere_by_the_same_word(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    client = await serve(
        {"text": f"Hm.\n</think>\n\nYour key is {KEY}, keep it."}, capture=str(folder), capture_redact=["hunter[0-9]+"]
    )
    body = {
        "model": "test-model",
        "max_tokens": 300,
        "stream": True,
        "messages": [{"role": "user", "content": f"My key is {KEY} and hunter22, I repeat: {KEY}"}],
    }
    await client.stream("/v1/messages", body, **{"x-api-key": KEY, "authorization": "Bearer hello"})
    capture = captured(client, folder)
    (turn,) = capture.turns
    said = json.loads(turn.request.body)["messages"][0]["content"]
    word = said.split()[3]
    assert word.startswith("REDACTED_key_")
    assert said.count(word) == 2
    assert "hunter22" not in said
    assert word in turn.text
    assert turn.request.headers["x-api-key"].startswith("REDACTED_")
    assert turn.redacted >= 4
    whole = encode_line(turn).decode()
    assert KEY not in whole
    tokenizer = client.gateway.runtimes[0].tokenizer
    for ids in (turn.prompt.ids, turn.output_ids):
        assert -1 in ids
        assert "a1B2" not in tokenizer.decode([token for token in ids if token >= 0])
    assert turn.answered == ""


async def test_a_secret_that_only_a_sealed_thought_holds_is_masked(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    first = {"text": f"The key is {KEY}, I keep it to myself.\n</think>\n\nDone."}
    client = await serve(first, {"text": "Hm.\n</think>\n\nStill done."}, capture=str(folder))
    body = {"model": "test-model", "store": False, "include": ["reasoning.encrypted_content"], "input": "Hi."}
    _, answer = await client.post("/v1/responses", body)
    carried = [
        item | {"summary": [], "content": []} if item["type"] == "reasoning" else item for item in answer["output"]
    ]
    again = [{"role": "user", "content": "Hi."}, *carried, {"role": "user", "content": "And now?"}]
    status, _ = await client.post("/v1/responses", body | {"input": again})
    assert status == 200
    _, second = captured(client, folder).turns
    tokenizer = client.gateway.runtimes[0].tokenizer
    assert KEY not in second.request.body
    assert -1 in second.prompt.ids
    shown = tokenizer.decode([token for token in second.prompt.ids if token >= 0])
    assert "I keep it to myself." in shown
    assert "a1B2" not in shown


def test_a_secret_in_a_file_is_an_error_that_names_its_turn(tmp_path: Path) -> None:
    from .made import head, turn

    lines = encode_line(head()) + encode_line(turn(body=f'{{"x":"{KEY}"}}'))
    with pytest.raises(CaptureError, match="Turn t1 holds what looks like a secret"):
        list(read_lines(io.BytesIO(lines)))


def test_another_format_is_refused_and_half_a_line_is_not_read() -> None:
    from .made import head, turn

    whole = encode_line(head()) + encode_line(turn())
    assert len(list(read_lines(io.BytesIO(whole + b'{"type":"turn","tur')))) == 2
    other = whole.replace(b'"format":1', b'"format":9,"models":3')
    with pytest.raises(CaptureError, match="format 9"):
        list(read_lines(io.BytesIO(other)))
    with pytest.raises(CaptureError, match="not a capture"):
        list(read_lines(io.BytesIO(b"")))


async def test_files_rotate_and_the_oldest_leave(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    client = await serve(*LINES, capture=str(folder), capture_file_bytes=1000, capture_folder_bytes=8000)
    for _ in range(4):
        await conversations.messages(client, stream=False)
    capture = captured(client, folder)
    files = [folder / name for name in os.listdir(folder)]
    assert 1 < len(files) < 12
    assert sum(path.stat().st_size for path in files) < 8000 + 4000
    assert 0 < len(capture.turns) < 12
    page = client.gateway.metrics.page().decode()
    assert 'turnwire_captures_total{outcome="written"} 12.0' in page


async def test_sessions_are_sampled_whole_and_filtered(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    client = await serve(*LINES, capture=str(folder), capture_sample=0.5, capture_filter=["api=messages"])
    for number in range(8):
        await conversations.messages(client, stream=False, **{"x-claude-code-session-id": f"s-{number}"})
    await conversations.chat(client, **{"x-claude-code-session-id": "s-0"})
    capture = captured(client, folder)
    sessions = [turn.session for turn in capture.turns]
    assert 0 < len(set(sessions)) < 8
    assert all(sessions.count(session) == 3 for session in sessions)
    assert {turn.api for turn in capture.turns} == {"messages"}


def test_a_filter_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError, match="write one like model="):
        CaptureRules(("colour=red",))


async def test_nothing_is_between_engine_and_client_while_off(serve: Serve, tmp_path: Path) -> None:
    client = await serve(*LINES)
    assert client.gateway.capturing is None
    await conversations.messages(client)
    assert os.listdir(tmp_path) == ["script.jsonl"]
