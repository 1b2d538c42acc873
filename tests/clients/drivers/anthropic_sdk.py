"""The Anthropic SDK of any pinned version: helpers, tool runner, counts, models. Prints JSON."""

import json
import os
import sys

import anthropic

URL, MODEL = os.environ["GATEWAY_URL"], os.environ["GATEWAY_MODEL"]
TOOL = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
THINKING = {"type": "enabled", "budget_tokens": 1024}


def stream_helper(client):
    """Two turns by hand on the stream helper, the assistant message sent back as the SDK gave it."""
    messages = [{"role": "user", "content": "How is the weather in Paris?"}]
    seen = []
    for _ in range(4):
        with client.messages.stream(
            model=MODEL, max_tokens=4000, messages=messages, tools=[TOOL], thinking=THINKING
        ) as stream:
            seen += [event.type for event in stream]
            message = stream.get_final_message()
        messages.append({"role": "assistant", "content": message.content})
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            text = "".join(block.text for block in message.content if block.type == "text")
            return {"text": text, "events": sorted(set(seen)), "stop_reason": message.stop_reason}
        messages.append(
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": call.id, "content": f"sunny in {call.input['city']}"}
                    for call in calls
                ],
            }
        )
    return {"text": "no end"}


def unary(client):
    message = client.messages.create(
        model=MODEL,
        max_tokens=4000,
        messages=[{"role": "user", "content": "How is the weather in Paris?"}],
        tools=[TOOL],
    )
    return {"blocks": [block.type for block in message.content], "usage": message.usage.input_tokens}


def tool_runner(client):
    """The SDK's own loop; version 2 speaks message threads in it."""

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather in a city.

        Args:
            city: The city.
        """
        return f"sunny in {city}"

    runner = client.beta.messages.tool_runner(
        model=MODEL,
        max_tokens=4000,
        max_iterations=4,
        tools=[get_weather],
        messages=[{"role": "user", "content": "How is the weather in Paris?"}],
    )
    last = runner.until_done()
    return {"text": "".join(block.text for block in last.content if block.type == "text")}


def counts(client):
    counted = client.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": "Hello there"}])
    message = client.messages.create(model=MODEL, max_tokens=10, messages=[{"role": "user", "content": "Hello there"}])
    usage = message.usage
    return {
        "counted": counted.input_tokens,
        "used": usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0),
    }


def models(client):
    listed = [model.id for model in client.models.list()]
    one = client.models.retrieve(MODEL)
    return {"listed": listed, "one": one.id, "created": one.created_at.isoformat()}


def refused(client):
    """Errors arrive as the SDK's own types, with the message."""
    try:
        client.messages.create(model="no-such-model", max_tokens=10, messages=[{"role": "user", "content": "Hi"}])
    except anthropic.NotFoundError as error:
        return {"error": type(error).__name__, "message": error.body["error"]["message"]}
    return {"error": None}


CASES = {f.__name__: f for f in (stream_helper, unary, tool_runner, counts, models, refused)}
client = anthropic.Anthropic(base_url=URL, api_key="sk-test", max_retries=0, timeout=30)
print(json.dumps(CASES[sys.argv[1]](client)))
