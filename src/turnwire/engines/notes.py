"""The stable codes that the engines may put into a Note, each with what it means for a reader of the log.

Promise: every code of this room is here, and no other; a test reads the sources.
"""

from __future__ import annotations

from typing import Final

__all__ = ["NOTES"]

NOTES: Final[dict[str, str]] = {
    "capture.other_prompt": "a capture answered with the turn at the same place; the prompt is not the captured one",
    "constraint.unguided": "the engine cannot be made to keep to the demanded form",
    "engine.images_as_text": "an engine that was given images tokenized the prompt itself, and otherwise than before",
    "engine.images_by_chat": "a turn with images went by the engine's chat route, which writes the prompt by itself",
    "engine.loop": "the model repeated itself without end and was stopped",
    "upstream.arguments": "the arguments of a call are not an object; they were sent on as one text",
    "upstream.block": "a block has no form in the server's API and was not passed on",
    "upstream.option": "an option has no form in the server's API and was not passed on",
    "upstream.order": "the server's API cannot tell in which order thoughts, text and calls came",
    "upstream.system": "a system message was passed on in another place",
    "upstream.thinking_budget": "a thinking budget was passed on in the server's own words",
    "upstream.unsigned_thought": "a thought without the server's own signature was not passed on",
}
