"""The OpenAI SDK: Chat Completions and Responses, streamed and not. Prints one JSON object."""

import json
import os
import sys

import openai

URL, MODEL = os.environ["GATEWAY_URL"], os.environ["GATEWAY_MODEL"]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather.", "parameters": SCHEMA}}
RESPONSES_TOOL = {"type": "function", "name": "get_weather", "description": "Weather.", "parameters": SCHEMA}
QUESTION = {"role": "user", "content": "How is the weather in Paris?"}


def chat(client, stream):
    messages = [QUESTION]
    for _ in range(4):
        if stream:
            with client.chat.completions.stream(model=MODEL, messages=messages, tools=[CHAT_TOOL]) as events:
                for _event in events:
                    pass
                message = events.get_final_completion().choices[0].message
        else:
            message = (
                client.chat.completions.create(model=MODEL, messages=messages, tools=[CHAT_TOOL]).choices[0].message
            )
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return {"text": message.content}
        for call in message.tool_calls:
            city = json.loads(call.function.arguments)["city"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"sunny in {city}"})
    return {"text": "no end"}


def chat_stream(client):
    return chat(client, True)


def chat_unary(client):
    return chat(client, False)


def chat_naive(client):
    """The loop of a thousand scripts: choices[0] of every chunk, fragments stitched by index."""
    text, calls = "", {}
    for chunk in client.chat.completions.create(model=MODEL, messages=[QUESTION], tools=[CHAT_TOOL], stream=True):
        delta = chunk.choices[0].delta
        text += delta.content or ""
        for part in delta.tool_calls or []:
            call = calls.setdefault(part.index, {"id": part.id, "name": part.function.name, "arguments": ""})
            call["arguments"] += part.function.arguments or ""
    return {"text": text, "calls": [[c["name"], json.loads(c["arguments"])] for c in calls.values()]}


def respond(client, stream, store):
    """With `store` only the new items are sent; without, the items the SDK gave are sent back."""
    items, before = [QUESTION], None
    for _ in range(4):
        body = {"model": MODEL, "input": items, "tools": [RESPONSES_TOOL], "reasoning": {"effort": "low"}}
        if store and before:
            body["previous_response_id"] = before
        if not store:
            body |= {"store": False, "include": ["reasoning.encrypted_content"]}
        if stream:
            with client.responses.stream(**body) as events:
                for _event in events:
                    pass
                response = events.get_final_response()
        else:
            response = client.responses.create(**body)
        before = response.id
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return {"text": response.output_text, "status": response.status}
        results = [
            {
                "type": "function_call_output",
                "call_id": c.call_id,
                "output": f"sunny in {json.loads(c.arguments)['city']}",
            }
            for c in calls
        ]
        items = results if store else items + [i.model_dump(exclude_none=True) for i in response.output] + results
    return {"text": "no end"}


def responses_stream(client):
    return respond(client, True, False)


def responses_unary(client):
    return respond(client, False, False)


def responses_stored(client):
    return respond(client, True, True)


def responses_kept(client):
    """A stored response can be read again, listed and deleted."""
    made = client.responses.create(model=MODEL, input="Hello")
    again = client.responses.retrieve(made.id)
    items = [item.type for item in client.responses.input_items.list(made.id)]
    client.responses.delete(made.id)
    try:
        client.responses.retrieve(made.id)
        gone = False
    except openai.NotFoundError:
        gone = True
    return {"same": again.output_text == made.output_text, "items": items, "gone": gone}


def models(client):
    return {"listed": [model.id for model in client.models.list()], "one": client.models.retrieve(MODEL).id}


CASES = {
    f.__name__: f
    for f in (
        chat_stream,
        chat_unary,
        chat_naive,
        responses_stream,
        responses_unary,
        responses_stored,
        responses_kept,
        models,
    )
}
client = openai.OpenAI(base_url=f"{URL}/v1", api_key="sk-test", max_retries=0, timeout=30)
print(json.dumps(CASES[sys.argv[1]](client)))
