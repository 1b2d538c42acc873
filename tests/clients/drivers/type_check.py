"""Validates recorded answers against the published types: openresponses-types and the SDKs' own. Prints JSON.

The first argument is a JSON file: a list of {"api", "kind": "object" | "event", "data"}. Validation is by the models'
`model_validate`, never by `construct`: what the SDKs let pass for leniency's sake is a problem here.
"""

import json
import sys
from pathlib import Path

import openresponses_types as spec
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter, ValidationError

# Events of the spec by their `type`; the SDKs' events are discriminated unions of their own.
SPEC_EVENTS = {
    next(iter(model.model_fields["type"].annotation)).value: model
    for name, model in vars(spec).items()
    if name.endswith("StreamingEvent") and isinstance(model, type) and issubclass(model, BaseModel)
}
# Known to the SDK and to every client, but not to the spec (it spells reasoning_text differently, and has no
# custom tools).
SDK_ONLY = {
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
    "response.custom_tool_call_input.delta",
    "response.custom_tool_call_input.done",
}
CHECKS = {
    ("messages", "object"): [TypeAdapter(Message)],
    ("messages", "event"): [TypeAdapter(RawMessageStreamEvent)],
    ("chat", "object"): [TypeAdapter(ChatCompletion)],
    ("chat", "event"): [TypeAdapter(ChatCompletionChunk)],
    ("responses", "object"): [TypeAdapter(Response), TypeAdapter(spec.ResponseResource)],
    ("responses", "event"): [TypeAdapter(ResponseStreamEvent)],
}

problems, checked = [], 0
for row in json.loads(Path(sys.argv[1]).read_text()):
    data = row["data"]
    if row["api"] == "messages" and data.get("type") == "ping":
        continue
    adapters = list(CHECKS[row["api"], row["kind"]])
    if row["api"] == "responses" and row["kind"] == "event" and data["type"] not in SDK_ONLY:
        known = SPEC_EVENTS.get(data["type"])
        if known is None:
            problems.append(f"{data['type']}: the specification knows no such event")
        else:
            adapters.append(TypeAdapter(known))
    for adapter in adapters:
        checked += 1
        try:
            adapter.validate_python(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            problems.append(f"{row['api']} {data.get('type') or data.get('object')}: {where}: {first['msg']}")
print(json.dumps({"checked": checked, "problems": problems}))
