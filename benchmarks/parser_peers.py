"""Runs a peer's streaming tool parser over pieces of text: no server, no model. Started by parsers.py in the peer's own
interpreter; reads jobs as JSON on standard input and answers with one line of JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

# vLLM reads harmony by token ids through a library that fetches its vocabulary; it has no figure here.
VLLM = {"qwen3_coder": "qwen3_coder", "hermes": "hermes", "deepseek_v3_2": "deepseek_v32"}
SGLANG = {
    "qwen3_coder": ("qwen3_coder_detector", "Qwen3CoderDetector"),
    "hermes": ("hermes_detector", "HermesDetector"),
    "deepseek_v3_2": ("deepseekv32_detector", "DeepSeekV32Detector"),
    "harmony": ("gpt_oss_detector", "GptOssDetector"),
}
MARKERS = ("<tool_call>", "</tool_call>", "<think>", "</think>", "｜DSML｜")

Step = Callable[[str], Any]


class Vocabulary:
    """Stands in for a tokenizer: every piece is a token of its own."""

    def __init__(self, pieces: list[str]) -> None:
        self.ids = {piece: number for number, piece in enumerate(dict.fromkeys([*MARKERS, *pieces]), start=1)}
        self.pieces = {number: piece for piece, number in self.ids.items()}
        self.all_special_tokens: list[str] = []
        self.all_special_ids: list[int] = []

    def get_vocab(self) -> dict[str, int]:
        return self.ids

    def encode(self, text: str, **_: Any) -> list[int]:
        return [self.ids[text]] if text in self.ids else []

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(self.pieces[number] for number in ids)


def vllm_step(family: str, pieces: list[str], schema: dict[str, Any]) -> Step:
    """One delta through vLLM's parser."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest, ChatCompletionToolsParam
    from vllm.tool_parsers import ToolParserManager

    tool = {"type": "function", "function": {"name": "write", "parameters": schema}}
    request = ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "x"}], tools=[tool])
    vocabulary = Vocabulary(pieces)
    parser = ToolParserManager.get_tool_parser(VLLM[family])(vocabulary, [ChatCompletionToolsParam(**tool)])
    text = ""
    earlier: list[int] = []
    ids: list[int] = []

    def step(piece: str) -> Any:
        nonlocal text
        before, text = text, text + piece
        earlier.extend(ids[-1:])  # both lists grow by one: copying them would be our cost, not the peer's
        ids.append(vocabulary.ids[piece])
        return parser.extract_tool_calls_streaming(before, text, piece, earlier, ids, ids[-1:], request)

    return step


def sglang_step(family: str, pieces: list[str], schema: dict[str, Any]) -> Step:
    """One delta through SGLang's parser."""
    import importlib

    from sglang.srt.entrypoints.openai.protocol import Function, Tool

    module, name = SGLANG[family]
    detector = getattr(importlib.import_module(f"sglang.srt.function_call.{module}"), name)()
    tools = [Tool(type="function", function=Function(name="write", parameters=schema))]
    return lambda piece: detector.parse_streaming_increment(piece, tools)


def arguments_in(answer: Any) -> str:
    """The argument text of one delta, whoever made it."""
    calls = getattr(answer, "tool_calls", None)
    if calls is None:
        calls = getattr(answer, "calls", None)
    texts = [getattr(getattr(call, "function", call), "arguments", None) for call in calls or []]
    texts += [getattr(call, "parameters", None) for call in calls or [] if not hasattr(call, "function")]
    return "".join(text for text in texts if isinstance(text, str))


def measured(step: Step, pieces: list[str], budget: float) -> dict[str, Any]:
    """µs of CPU per token, and whether the arguments came out whole."""
    said: list[str] = []
    begin = time.process_time()
    count = 0
    for piece in pieces:
        answer = step(piece)
        count += 1
        if answer is not None:
            said.append(arguments_in(answer))
        if not count % 64 and time.process_time() - begin > budget:
            break
    took = time.process_time() - begin
    try:
        right = set(json.loads("".join(said))) == {"path", "content", "overwrite"}
    except ValueError:
        right = False
    cut = count < len(pieces)
    return {"us": round(took / count * 1e6, 2), "tokens": count, "cut": cut, "right": right or cut}


def main() -> None:
    asked = json.load(sys.stdin)
    make, known = (vllm_step, VLLM) if asked["engine"] == "vllm" else (sglang_step, SGLANG)
    figures: dict[str, dict[str, Any]] = {}
    for job in asked["jobs"]:
        if job["family"] not in known:
            continue
        try:
            cell = measured(make(job["family"], job["pieces"], asked["schema"]), job["pieces"], asked["budget"])
        except Exception as broken:  # a peer's parser may do anything; its row then says so
            cell = {"error": type(broken).__name__}
        figures.setdefault(job["family"], {})[str(job["size"])] = cell
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
