"""While a turn runs, its request's body is in memory only where it will be recorded or captured."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from turnwire.gateway.apis.chat import Chat
from turnwire.gateway.gateway import Gateway
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import assemble_models
from turnwire.gateway.turns.admission import admit
from turnwire.gateway.turns.arrival import Arrival

BODY = json.dumps({"model": "m", "n": 2, "messages": [{"role": "user", "content": "Hi."}]}).encode()


@pytest.mark.parametrize("keeper", [None, "record", "capture"])
async def test_a_body_is_kept_for_those_who_write_it_down(tmp_path: Path, keeper: str | None) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"text": "Hi."}\n')
    settings = Settings(engine=f"scripted:{script}", model="m", dialect="hermes")
    if keeper is not None:
        settings = msgspec.structs.replace(settings, **{keeper: str(tmp_path / keeper)})
    gateway = Gateway(settings, await assemble_models(settings))
    arrival = Arrival(headers={}, body=BODY, started=0.0)
    turns = await admit(gateway, Chat(gateway.limits.wire, gateway.decoded), arrival)
    assert [turn.body for turn in turns] == [BODY if keeper else b""] * 2
    assert arrival.body == b""
    for runtime in gateway.runtimes:
        await runtime.engine.close()
