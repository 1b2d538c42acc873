"""Captured turns run again: through decode, prompt, parse and encode, and as an engine for a client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import msgspec
import pytest
from click.testing import CliRunner, Result

from turnwire.capture.difference import ids_differ
from turnwire.capture.format import CaptureError
from turnwire.capture.reading import Capture
from turnwire.cli.main import main
from turnwire.engines.captured.files import load_capture
from turnwire.engines.embedded.downloads import DEFAULT_MODEL, KNOWN_MODELS, cache_folder
from turnwire.gateway.replay.replaying import Replayed, replay, replay_settings
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import AssemblyError
from turnwire.parsers.codecs.tagged.ends import Ends, Verdict

from ..engines.embedded_fake import write_gguf
from ..gateway.conftest import Client, Serve
from . import conversations
from .conversations import LINES


async def replayed(folder: Path, base: Settings | None = None, capture: Capture | None = None) -> list[Replayed]:
    capture = capture or load_capture(str(folder))
    settings = replay_settings(capture, str(folder), base or Settings())
    return [one async for one in replay(capture, settings)]


def closed(client: Client) -> None:
    assert client.gateway.capturing is not None
    client.gateway.capturing.close()


async def _alive(answer: aiohttp.ClientResponse, sign: bytes, times: int = 1) -> None:
    """Read until a sign of life."""
    data = b""
    while data.count(sign) < times:
        data += await answer.content.readany()


async def _broken_off(client: Client) -> None:
    """A stream that its client leaves, one that the operator ends, and one that gets signs of life."""
    body = {"model": "test-model", "stream": True, "messages": [{"role": "user", "content": "Talk."}]}
    async with client.session.post(client.base + "/v1/chat/completions", json=body) as answer:
        await _alive(answer, b"keep-alive")
    while len(client.gateway.heartbeat):
        await asyncio.sleep(0.01)
    async with client.session.post(client.base + "/v1/responses", json=body | {"input": "Talk."}) as answer:
        # The opening tells it once, as the event's name and in its data.
        await _alive(answer, b"response.in_progress", times=4)
        async with client.session.get(client.base + "/admin/live") as told:
            (live,) = await told.json()
        await client.post(f"/admin/turns/{live['turn_id']}/cancel", {})
        await answer.read()


SESSIONS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "messages": conversations.messages,
    "messages whole": lambda client: conversations.messages(client, stream=False),
    "chat": conversations.chat,
    "chat whole": lambda client: conversations.chat(client, stream=False),
    "responses": conversations.responses,
    "responses whole": lambda client: conversations.responses(client, stream=False),
    "socket": conversations.socket,
    "completions": conversations.completions,
}


@pytest.mark.parametrize("session", SESSIONS)
async def test_nothing_differs(serve: Serve, tmp_path: Path, session: str) -> None:
    folder = tmp_path / "captures"
    client = await serve(*LINES, capture=str(folder))
    await SESSIONS[session](client)
    closed(client)
    done = await replayed(folder)
    assert [(one.skipped, [str(each) for each in one.differences]) for one in done] == [("", [])] * len(done)
    assert len(done) == (1 if session == "completions" else 3)
    if session != "completions":
        assert all(len(one.turn.output_ids) > 5 for one in done)
        assert done[1].turn.prompt.ids[: len(done[0].turn.prompt.ids)] == done[0].turn.prompt.ids


async def test_nothing_differs_in_turns_that_were_cut_or_waited(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    slow = {"text": "Hm.\n</think>\n\n" + "word " * 400, "delay_ms": 10, "first_delay_ms": 3000}
    client = await serve(slow, capture=str(folder), keepalive=0.02)
    await _broken_off(client)
    closed(client)
    done = await replayed(folder)
    assert [(one.skipped, [str(each) for each in one.differences]) for one in done] == [("", [])] * 2
    assert [one.turn.ended_by for one in done] == ["gone", "cancelled"]
    assert all(one.turn.beats for one in done)


async def test_what_differs_is_shown_where(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    client = await serve(*LINES, capture=str(folder))
    await conversations.messages(client)
    closed(client)
    capture = load_capture(str(folder))
    first = capture.turns[0]
    ids = [*first.prompt.ids]
    ids[7] += 1
    changed = msgspec.structs.replace(
        first,
        prompt=msgspec.structs.replace(first.prompt, ids=ids),
        answer=(
            *first.answer[:-1],
            (first.answer[-1][0], first.answer[-1][1].replace("message_stop", "message_halt", 1)),
        ),
    )
    capture.turns[0] = changed
    done = await replayed(folder, capture=capture)
    assert next((one.stage, one.at) for one in done[0].differences) == ("prompt", 7)
    assert "message_halt" in done[0].differences[1].captured
    assert [one.differences for one in done[1:]] == [(), ()]


async def test_a_history_outside_the_capture_is_said_and_not_called_equal(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    # What the template would write in another way than the model did.
    odd = {"text": LINES[0]["text"].replace("both.\n", "both.   \n\n\n")}
    client = await serve(odd, *LINES[1:], capture=str(folder))
    await conversations.messages(client)
    closed(client)
    capture = load_capture(str(folder))
    assert [one.differences for one in await replayed(folder, capture=capture)] == [()] * 3
    del capture.turns[0]
    done = await replayed(folder, capture=capture)
    assert "not in this capture" in done[0].skipped


async def test_another_tokenizer_is_refused(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    client = await serve(*LINES, capture=str(folder))
    await conversations.chat(client)
    closed(client)
    capture = load_capture(str(folder))
    model = msgspec.structs.replace(capture.models["test-model"], tokenizer="another")
    capture.models["test-model"] = model
    with pytest.raises(CaptureError, match="--tokenizer"):
        await replayed(folder, capture=capture)


async def test_a_model_on_disk_gives_its_tokenizer_by_its_name(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known, folder = KNOWN_MODELS[DEFAULT_MODEL], tmp_path / "captures"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder().mkdir(parents=True)
    file = write_gguf(cache_folder() / known.file)
    client = await serve(*LINES, model=file.stem, tokenizer=str(file), capture=str(folder))
    body = {"model": file.stem, "messages": [{"role": "user", "content": "Hi."}]}
    assert (await client.post("/v1/chat/completions", body))[0] == 200
    closed(client)

    async def run(*options: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, main, ["replay", str(folder), *options])

    for name in (known.name, known.file, file.stem.upper(), str(file)):
        ran = await run("--tokenizer", name)
        assert (ran.exit_code, ran.output) == (0, "1 turn equal, 0 different, 0 not compared\n")
    caplog.clear()
    said = "captured with another tokenizer; give that model's folder, GGUF file or name with --tokenizer."
    assert (await run()).output == f"Error: {file.stem} was {said}\n"
    assert not caplog.records
    # The embedded engine says the same name of the file that it runs, which then needs no flag.
    capture = load_capture(str(folder))
    capture.models[file.stem] = msgspec.structs.replace(capture.models[file.stem], engine="embedded")
    (found,) = await replayed(folder, capture=capture)
    assert (found.skipped, found.differences) == ("", ())


async def test_a_client_runs_again_without_its_engine(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    client = await serve(*LINES, capture=str(folder))
    await conversations.messages(client)
    closed(client)
    said = [turn.text for turn in load_capture(str(folder)).turns]
    again = await serve(engine=f"capture:{folder}", capture=str(tmp_path / "again"))
    await conversations.messages(again)
    closed(again)
    second = load_capture(str(tmp_path / "again"))
    assert [turn.text for turn in second.turns] == said
    assert not any(code == "capture.other_prompt" for turn in second.turns for code, _ in turn.notes)
    # Another question at the same place gets the same answer, and hears that it is another one.
    body = {"model": "test-model", "max_tokens": 500, "messages": [{"role": "user", "content": "Something else?"}]}
    status, answer = await again.post("/v1/messages", body)
    assert status == 200
    assert answer["content"][0]["thinking"].startswith("I look at both.")
    (summary,) = again.gateway.journal.last(1)
    assert "capture.other_prompt" in summary.notes


async def test_a_capture_that_is_not_there_is_said(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(AssemblyError, match="cannot be read"):
        await serve(engine=f"capture:{tmp_path / 'nothing.jsonl'}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(AssemblyError, match="holds no capture"):
        await serve(engine=f"capture:{tmp_path / 'empty'}")


async def test_a_repro_bundle_of_a_parser_bug_fails_before_the_fix_and_passes_after(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bug: a value ends at the first closing tag, also at one that it only quotes."""
    folder, bundle, wanted = tmp_path / "captures", tmp_path / "bug.capture.jsonl", tmp_path / "wanted.json"
    path = "/a mentions </parameter> in its name"
    monkeypatch.setattr(Ends, "_own_closer", lambda *_: Verdict.ENDS)
    client = await serve({"text": "I look.\n</think>\n\n" + conversations.CALL.format(path)}, capture=str(folder))
    body = {
        "model": "test-model",
        "max_tokens": 500,
        "tools": [{"name": "ls", "input_schema": conversations.TOOL}],
        "messages": [{"role": "user", "content": "What is in it?"}],
    }
    status, answer = await client.post("/v1/messages", body)
    assert status == 200
    assert [block["input"] for block in answer["content"] if block["type"] == "tool_use"] == [{"path": "/a mentions "}]
    closed(client)
    blocks = [
        {"kind": "reasoning", "text": "I look."},
        {"kind": "tool_call", "name": "ls", "arguments": {"path": path}},
    ]
    wanted.write_bytes(msgspec.json.encode(blocks))
    (turn,) = load_capture(str(folder)).turns

    async def run(*line: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, main, line)

    made = await run("repro", turn.turn_id, str(folder), "--expect", str(wanted), "-o", str(bundle))
    assert made.exit_code == 0, made.output
    before = await run("replay", str(bundle))
    assert before.exit_code == 1
    assert "parse differs at 1" in before.output
    assert before.output.endswith("0 turns equal, 1 different, 0 not compared\n")
    monkeypatch.undo()
    after = await run("replay", str(bundle))
    assert (after.exit_code, after.output) == (0, "1 turn equal, 0 different, 0 not compared\n")


@pytest.mark.parametrize(
    ("captured", "made", "at"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([1, 2, 3], [1, 2, 4], 2),
        ([1, 2, 3], [1, 2], 2),
        ([1, 2], [1, 2, 3], 2),
        ([1, -1, -1, 4], [1, 8, 9, 7, 4], None),
        ([1, -1, 4], [1, 4], 1),
        ([-1, 4, -1], [9, 4, 9], None),
        ([1, -1, 4, -1, 6], [1, 9, 4, 9, 6], None),
        ([1, -1, 4], [1, 9, 5], 1),
    ],
)
def test_masked_ids_stand_for_any(captured: list[int], made: list[int], at: int | None) -> None:
    found = ids_differ("t", "prompt", captured, made)
    assert (found.at if found else None) == at
