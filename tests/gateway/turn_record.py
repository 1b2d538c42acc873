"""An admitted request, made without a gateway."""

from __future__ import annotations

import time
from typing import Any

from turnwire.continuity import Verdict
from turnwire.engines.interface import EngineInfo
from turnwire.gateway.turns.record import TurnRecord
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.parsers import resolve
from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.templates.template import default_template
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.protocols.wire import Inbound
from turnwire.turns import Conversation

TOKENIZER = load_tokenizer(None)
# Made once: it looks at how its template writes many small conversations.
_BUILDER = PromptBuilder(default_template(), TOKENIZER)


def turn_record(
    engine: Any, conversation: Conversation, *, dialect: str, window: int, stream: bool = False
) -> TurnRecord[Any]:
    """The record of a turn that `engine` will run."""
    runtime = ModelRuntime(
        "m",
        engine=engine,
        info=EngineInfo(name="fake"),
        dialect=resolve(dialect),
        builder=_BUILDER,
        tokenizer=TOKENIZER,
        window=window,
    )
    return TurnRecord(
        api="chat",
        turn_id="T",
        tenant="t",
        session="t",
        started=time.monotonic(),
        headers={},
        body=b"",
        inbound=Inbound(conversation=conversation, stream=stream, echo=None),
        runtime=runtime,
        dialect=runtime.dialect,
        exact=True,
        prompt=_BUILDER.build(conversation),
        continuity=Verdict(state="first"),
    )
