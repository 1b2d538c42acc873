"""A good body for every route that takes one, and the output that the scripted models answer with.

Promise: each of them is answered with success, so that what is broken in one is what a refusal is about.
"""

from __future__ import annotations

from typing import Any

SCHEMA = {"type": "object", "properties": {"c": {"type": "string"}, "n": {"type": "integer"}}}
MODELS = ("m", "h", "g", "v")
"""Three scripted models that write in different ways, and one on a server that takes grammars."""

GOOD: dict[str, dict[str, Any]] = {
    "/v1/messages": {
        "model": "m",
        "max_tokens": 200,
        "stream": False,
        "system": [{"type": "text", "text": "Be brief."}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [{"name": "Bash", "description": "Run.", "input_schema": SCHEMA}],
        "tool_choice": {"type": "auto"},
        "stop_sequences": ["END"],
        "temperature": 0.5,
        "metadata": {"user_id": "u"},
        "messages": [
            {"role": "user", "content": "Hi."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                    {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"c": "ls"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a.py"}]},
                    {"type": "text", "text": "Go on."},
                ],
            },
        ],
    },
    "/v1/chat/completions": {
        "model": "m",
        "stream": False,
        "max_tokens": 200,
        "n": 1,
        "stop": ["END"],
        "logprobs": True,
        "top_logprobs": 2,
        "tools": [{"type": "function", "function": {"name": "Bash", "parameters": SCHEMA}}],
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "seed": 3,
        "logit_bias": {"5": 1},
        "chat_template_kwargs": {"enable_thinking": True},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi."}]},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "Hm.",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "Bash", "arguments": '{"c":"ls"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "a.py"},
            {"role": "user", "content": "Go on."},
        ],
    },
    "/v1/completions": {"model": "m", "prompt": "Once upon", "max_tokens": 8, "stop": ["END"], "echo": True, "n": 2},
    "/v1/embeddings": {"model": "m", "input": ["a", "b"], "encoding_format": "float"},
    "/v1/responses": {
        "model": "m",
        "instructions": "Be brief.",
        "stream": False,
        "store": True,
        "max_output_tokens": 200,
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "parallel_tool_calls": True,
        "tools": [
            {"type": "function", "name": "Bash", "parameters": SCHEMA},
            {
                "type": "custom",
                "name": "patch",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"},
            },
        ],
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]},
            {"type": "function_call", "call_id": "call1", "name": "Bash", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call1", "output": "a.py"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
        ],
    },
    "/v1/tokenize": {"model": "m", "text": "Hi there.", "return_token_strs": True},
    "/v1/detokenize": {"model": "m", "tokens": [1, 2, 3]},
}
GOOD["/v1/messages/count_tokens"] = GOOD["/v1/messages"]
GOOD["/v1/responses/compact"] = GOOD["/v1/responses"]
GOOD["/v1/responses/input_tokens"] = GOOD["/v1/responses"]

IMAGES: dict[str, dict[str, Any]] = {
    "/v1/messages": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
    "/v1/chat/completions": {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    "/v1/responses": {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
}


def last_content(path: str, body: dict[str, Any], text: str) -> list[dict[str, Any]]:
    """Make `text` what the user says last, and return the parts that it is among."""
    kind = "input_text" if path.startswith("/v1/responses") else "text"
    parts = [{"type": kind, "text": text}]
    said = body["input" if path.startswith("/v1/responses") else "messages"][-1]
    if path.startswith("/v1/messages"):
        parts = [said["content"][0], *parts]
    said["content"] = parts
    return parts


def _calls(dialect: str, name: str, arguments: dict[str, str]) -> str:
    """A call as a model of the dialect writes it; the values are JSON."""
    if dialect == "qwen3_coder":
        inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
        return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"
    written = ", ".join(f'"{key}": {value}' for key, value in arguments.items())
    if dialect == "gpt_oss":
        head = f"<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
        return f"{head}{{{written}}}<|call|>"
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{{written}}}}}\n</tool_call>'


def script(dialect: str) -> list[dict[str, Any]]:
    """The lines of a model: `say-K` in what the user said last calls for line K, anything else for the first."""
    run, odd = {"c": '"ls"', "n": "3"}, {"c": "[1, {}]", "n": '"x"', "é\\n": "null"}
    harmony = dialect == "gpt_oss"
    first = "<|channel|>final<|message|>" if harmony else "Hm.\n</think>\n\n"
    call = "<|channel|>analysis<|message|>Hm.<|end|>" if harmony else "Hm.\n</think>\n\n"
    texts: list[dict[str, Any]] = [
        {"text": f"{first}A short answer to anything at all."},
        {"text": call + _calls(dialect, "Bash", run)},
        {"text": call + _calls(dialect, "Bash", odd)},
        {"text": call + _calls(dialect, "Bash", run) + "\n" + _calls(dialect, "Search", {"c": '"é\\u0000"'})},
        {"text": call + _calls(dialect, "no such tool", run)},
        {"text": call + _calls(dialect, "Bash", run)[:-30]},
        {"text": f'{first}{{"c": "ls", "n": 3}}'},
        {"text": f'{first}[1, 2.5e300, "\\ud83d\\ude42", null, {{"c": {{"c": []}}}}]'},
        {"text": f'{first}Not JSON: {{"c": 🙂 é \u2028', "finish": "length"},
        {"text": f"{first}A word or two before the worker is full.", "finish": "error", "error": "overloaded"},
        {"text": f"{first}Slowly, with some words between.", "delay_ms": 3},
        {"text": ""},
        {"text": call},
        {"text": call + _calls(dialect, "patch", {"input": '"*** Begin"'})},
    ]
    lines = [{**line, "match": f"say-{number}."} for number, line in enumerate(texts)]
    return [*lines, texts[0]]


LINES = len(script("hermes")) - 1
