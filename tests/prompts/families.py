"""Small templates of our own that behave, where it matters to us, as those of well-known model families do; and what
probing has to find in each."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from turnwire.prompts.templates.template import ChatTemplate

_FOLDER = Path(__file__).parent / "family_templates"
_ALL = ("tool_before", "text_before", "tool_after")

# Traits of the template; those under "turn_ends" are of its turn_ends.
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen2.5": {
        "reasoning_field": None,
        "kept": (),
        "thinking_off": None,
        "thinks": False,
        "mid_system": "system",
        "turn_ends": {"to_tool": "<|im_end|>\n<|im_start|>user\n<tool_response>\n", "call_close": '"}}\n</tool_call>'},
    },
    "qwen3": {
        "reasoning_field": "reasoning_content",
        "kept": ("tool_after",),
        "history_switch": {},
        "thinking_off": {"enable_thinking": False},
        "thinking_default": True,
        "thought_open": "",
        "thought_close": "</think>",
    },
    "qwen3.5": {
        "mid_system": None,
        "tail_on": "<|im_start|>assistant\n<think>\n",
        "tail_off": "<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "thought_open": "<think>\n",
    },
    "nemotron3": {
        "kept": ("tool_after",),
        "history_switch": {"truncate_history_thinking": False},
        "kept_with_switch": _ALL,
        "tail_off": "<|im_start|>assistant\n<think></think>",
    },
    "glm4.7": {
        "history_switch": {"clear_thinking": False},
        "tail_off": "<|assistant|></think>",
        "thought_open": "<think>",
        "arguments": "object",
        "turn_ends": {
            "to_tool": "<|observation|><tool_response>",
            "to_user": "<|user|>",
            "call_close": "</arg_value></tool_call>",
        },
    },
    "kimi-k2": {
        "call_ids": "kimi",
        "thinks": False,
        "turn_ends": {"local": True},
    },
    "kimi-k2-thinking": {
        "call_ids": "kimi",
        "kept": ("tool_after",),
        "tools": False,
        "thinking_default": True,
        "turn_ends": {"local": False},
    },
    "minimax-m2": {
        "thinking_off": None,
        "thinking_default": True,
        "kept": ("tool_after",),
        "thought_open": "<think>\n",
        "turn_ends": {"to_user": "[e~[\n]~b]user\n"},
    },
    "deepseek-r1": {
        "reasoning_field": None,
        "strips_thoughts": True,
        "thinks": True,
        "thinking_default": True,
    },
    "deepseek-v4": {
        "thinking_on": {"thinking": True},
        "thinking_off": {"thinking": False},
        "thinking_default": False,
        "kept": _ALL,
        "mid_system": "developer",
    },
    "gpt-oss": {
        "reasoning_field": "thinking",
        "parallel_calls": False,
        "text_with_calls": False,
        "effort_argument": "reasoning_effort",
        "effort_values": ("low", "medium", "high"),
        "thinking_off": None,
        "turn_ends": {"to_tool": "<|call|><|start|>functions.", "to_user": "<|end|><|start|>user<|message|>"},
    },
    "mistral": {
        "call_ids": "nine",
        "tools_follow_last_user": True,
        "user_after_user": False,
        "user_after_tool": False,
        "mid_system": None,
        "text_with_calls": False,
    },
    "ministral": {
        "reasoning_field": "parts",
        "kept": _ALL,
        "thought_close": "[/THINK]",
    },
    "llama3": {
        "parallel_calls": False,
        "thinks": False,
        "turn_ends": {"call_close": '"}}'},
    },
    "gemma4": {
        "thinking_default": False,
        "thought_close": "<channel|>",
        "tail_on": "<|turn>model\n",
        "turn_ends": {"to_tool": "<|tool_response>"},
    },
    "command": {
        "kept": ("tool_before", "tool_after"),
        "text_with_calls": False,
        "turn_ends": {"local": False},
    },
    "solar": {
        "reasoning_field": "reasoning",
        "history_switch": {"think_render_option": "all"},
        "thinking_off": {"reasoning_effort": "minimal"},
    },
    "functionary": {
        "arguments": "text",
    },
    "lfm2": {
        "thinks": False,
        "tools": True,
        "turn_ends": {"calls": False, "to_tool": "<|im_end|>\n<|im_start|>tool\n"},
    },
    "gemma2": {
        "tools": False,
        "system": False,
        "tool_role": False,
        "user_after_user": False,
    },
}


def source(name: str) -> str:
    return (_FOLDER / f"{name}.jinja").read_text("utf-8")


def template(name: str) -> ChatTemplate:
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    return ChatTemplate(source(name), special, clock=lambda: datetime(2026, 1, 2))
