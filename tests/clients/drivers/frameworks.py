"""Agent frameworks on the API named by the second argument: one question, one tool, the final text. Prints JSON."""

import asyncio
import json
import os
import sys

URL, MODEL = os.environ["GATEWAY_URL"], os.environ["GATEWAY_MODEL"]
V1 = f"{URL}/v1"
QUESTION = "How is the weather in Paris?"


def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: The city.
    """
    return f"sunny in {city}"


def openai_agents(api):
    from agents import (
        Agent,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    kind = OpenAIResponsesModel if api == "responses" else OpenAIChatCompletionsModel
    client = AsyncOpenAI(base_url=V1, api_key="sk-test", max_retries=0)
    agent = Agent(name="a", model=kind(MODEL, client), tools=[function_tool(get_weather)])

    async def streamed():
        result = Runner.run_streamed(agent, QUESTION)
        async for _event in result.stream_events():
            pass
        return result.final_output

    return asyncio.run(streamed())


def pydantic_ai(api):
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    if api == "messages":
        model = AnthropicModel(MODEL, provider=AnthropicProvider(base_url=URL, api_key="sk-test"))
    else:
        kind = OpenAIResponsesModel if api == "responses" else OpenAIChatModel
        model = kind(MODEL, provider=OpenAIProvider(base_url=V1, api_key="sk-test"))
    agent = Agent(model, tools=[get_weather])

    async def streamed():
        async with agent.run_stream(QUESTION) as result:
            return await result.get_output()

    return asyncio.run(streamed())


def langchain(api):
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool

    if api == "messages":
        from langchain_anthropic import ChatAnthropic

        model = ChatAnthropic(
            model=MODEL,
            base_url=URL,
            api_key="sk-test",
            max_retries=0,
            max_tokens=4000,
            thinking={"type": "enabled", "budget_tokens": 1024},
        )
    else:
        from langchain_openai import ChatOpenAI

        more = {}
        if api == "responses":
            more = {
                "use_responses_api": True,
                "reasoning": {"effort": "low", "summary": "auto"},
                "include": ["reasoning.encrypted_content"],
                "store": False,
            }
        model = ChatOpenAI(model=MODEL, base_url=V1, api_key="sk-test", max_retries=0, **more)
    weather = tool(get_weather)
    bound = model.bind_tools([weather])
    messages = [HumanMessage(QUESTION)]
    for _ in range(4):
        whole = None
        for chunk in bound.stream(messages):
            whole = chunk if whole is None else whole + chunk
        messages.append(whole)
        if not whole.tool_calls:
            return whole.text
        messages += [ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]) for call in whole.tool_calls]
    return "no end"


def litellm(api):
    import litellm as library

    if api == "responses":
        answer = library.responses(model=f"openai/{MODEL}", input=QUESTION, api_base=V1, api_key="sk-test")
        return next(item.content[0].text for item in answer.output if item.type == "message")
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "Weather.", "parameters": schema}}]
    where = {"api_base": URL if api == "messages" else V1, "api_key": "sk-test", "num_retries": 0}
    prefix = "anthropic" if api == "messages" else "openai"
    messages = [{"role": "user", "content": QUESTION}]
    for _ in range(4):
        chunks = list(
            library.completion(
                model=f"{prefix}/{MODEL}", messages=messages, tools=tools, stream=True, max_tokens=4000, **where
            )
        )
        message = library.stream_chunk_builder(chunks, messages=messages).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            result = get_weather(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return "no end"


CASES = {f.__name__: f for f in (openai_agents, pydantic_ai, langchain, litellm)}
print(json.dumps({"text": CASES[sys.argv[1]](sys.argv[2])}))
