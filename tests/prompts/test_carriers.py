"""Carriers of seals are not words of the model: where their turn is not recalled, nothing shows them."""

from __future__ import annotations

import pytest
from families import FAMILIES, template

from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.prompt import Prompt
from turnwire.prompts.recall.recall import TurnRecall
from turnwire.prompts.recall.seals import Sealer
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import (
    Block,
    Conversation,
    Message,
    ReasoningBlock,
    TextBlock,
    Thinking,
    Tool,
    ToolCallBlock,
    ToolResultBlock,
)

TOKENIZER = load_tokenizer()
TOOLS = (Tool(name="Bash", description="Runs.", schema={"type": "object", "properties": {"q": {"type": "string"}}}),)
CALL = ToolCallBlock(id="call_1", name="Bash", arguments='{"q": "ls"}')
RESULT = Message(
    role="user", blocks=(ToolResultBlock(call_id="call_1", content=(TextBlock(text="a b"),), name="Bash"),)
)
CARRIER = ReasoningBlock(text="", seal="of another server", redacted=True)


def built(builder: PromptBuilder, *blocks: Block) -> Prompt:
    messages = (
        Message(role="user", blocks=(TextBlock(text="Go."),)),
        Message(role="assistant", blocks=blocks),
        RESULT,
    )
    conversation = Conversation(model="m", messages=messages, tools=TOOLS, thinking=Thinking(mode="on"))
    recall = TurnRecall(tokenizer=TOKENIZER, tenant="t", model="m", sealer=Sealer([bytes(32)]))
    return builder.build(conversation, recall)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_lost_carrier_leaves_no_trace(name: str) -> None:
    builder = PromptBuilder(template(name), TOKENIZER)
    for blocks in ((ReasoningBlock(text="Look."), CALL), (CALL,)):
        plain, carried = built(builder, *blocks), built(builder, *blocks, CARRIER)
        assert list(carried.ids) == list(plain.ids)
        codes = {note.code for note in carried.notes}
        assert "replay.seal_foreign" in codes
        assert "replay.order_lost" not in codes
