"""Finds a model's dialect from its template, vocabulary and id, says why, and never guesses silently."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from turnwire.parsers.dialect import Dialect
from turnwire.parsers.registry import UnknownDialect, resolve

__all__ = ["Detection", "detect"]


@dataclass(frozen=True, slots=True)
class Detection:
    """What was found. `dialect` is None where the evidence does not decide: then `candidates` are the names that fit
    and `why` says what is missing."""

    dialect: Dialect | None
    why: str
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Signature:
    """A family is recognised by texts that all occur in its template (or vocabulary), and none of `never`."""

    dialect: str
    texts: tuple[str, ...]
    never: tuple[str, ...] = ()


# The first signature that matches wins: an earlier one is more special than a later one it overlaps with.
SIGNATURES: Final = (
    Signature("apertus", ("<|inner_prefix|>",)),
    Signature("gemma4", ("<|channel>",)),
    Signature("gemma4", ("<|tool_call>call:",)),
    Signature("functiongemma", ("<start_function_call>",)),
    Signature("muse_glimmer", ("<atem:function_calls>",)),
    Signature("muse_glimmer", ("atem:", "to=self")),
    Signature("harmony", ("<|channel|>", "<|message|>")),
    Signature("kimi_k3", ("<|open|>", "<|end_of_msg|>")),
    Signature("kimi_k2", ("<|tool_calls_section_begin|>",)),
    Signature("minimax_m3", ("]<]minimax[>[",)),
    Signature("minimax_m2", ("<minimax:tool_call>",)),
    Signature("deepseek_v4_1", ("｜DSML｜", "<｜DSML｜ calls")),
    Signature("deepseek_v4", ("｜DSML｜", "tool_calls>"), ("function_calls>",)),
    Signature("deepseek_v3_2", ("｜DSML｜", "function_calls>")),
    Signature("step3", ("<steptml:invoke",)),
    Signature("deepseek_v3", ("<｜tool▁sep｜>", "```json")),
    Signature("deepseek_v3_1", ("<｜tool▁sep｜>",)),
    Signature("seed_oss", ("<seed:tool_call>",)),
    Signature("cohere_command4", ("<|START_TEXT|>",)),
    Signature("cohere_command3", ("<|START_ACTION|>",)),
    Signature("solar", ("<|tool_call:begin|>",)),
    Signature("inkling", ("<|content_invoke_tool_json|>",)),
    Signature("mistral", ("[TOOL_CALLS]",)),
    Signature("minicpm5", ("<function name=", "<param name=")),
    Signature("hy_v3", ("<tool_sep",)),
    Signature("poolside_v1", ("<arg_key>", "<arg_value>", "<assistant>")),
    Signature("glm47", ("<arg_key>", "<arg_value>", "clear_thinking")),
    Signature("glm45", ("<arg_key>", "<arg_value>")),
    Signature("nemotron_v3", ("<function=", "<parameter=", "truncate_history_thinking")),
    Signature("qwen3_coder", ("<function=", "<parameter=")),
    Signature("functionary_v3_1", ("<function=", "</function>")),
    Signature("lfm2", ("<|tool_call_start|>",)),
    Signature("lfm2", ("<|tool_list_start|>",)),
    Signature("internlm2", ("<|action_start|>",)),
    Signature("gigachat3", ("<|role_sep|>",)),
    Signature("gigachat3", ("<|function_call|>",)),
    Signature("dots", ("<dots_function_call>",)),
    Signature("nemotron_deci", ("<TOOLCALL>",)),
    Signature("apriel_1_6", ("[BEGIN FINAL RESPONSE]", "Here are my reasoning steps:")),
    Signature("apriel_1_5", ("[BEGIN FINAL RESPONSE]",)),
    Signature("phi4_mini", ("functools",)),
    Signature("longcat", ("<longcat_tool_call>",)),
    Signature("olmo3", ("<function_calls>",)),
    Signature("sarashina", ("<|tool_calls|>",)),
    Signature("functionary_v3_2", (">>>all",)),
    Signature("command_r_plus", ("Action:", "directly_answer")),
    Signature("command_r_plus", ("Action:", "directly-answer")),
    Signature("granite", ("<|tool_call|>",)),
    Signature("granite_20b_fc", ("<function_call>",)),
    Signature("minimax_m1", ("<tool_calls>", "<beginning_of_sentence>")),
    Signature("hunyuan_a13b", ("<tool_calls>", "<answer>")),
    Signature("jamba", ("<tool_calls>",)),
    Signature("ernie45", ("<tool_call>", "<response>")),
    Signature("hermes", ("<tool_call>", '"name"')),
    Signature("hermes", ("<tool_call>", "tool_call.name")),
    Signature("llama4_pythonic", ("<|python_start|>",)),
    Signature("llama3_json", ("<|python_tag|>",)),
    Signature("llama3_json", ('"parameters": ', '{"name": ')),
    Signature("kimi_vl", ("◁think▷",)),
    Signature("think", ("</think>",)),
)

# What an id alone tells. Used when there is no template, and to choose where the vocabulary fits several.
IDS: Final = (
    ("*gpt-oss*", "harmony"),
    ("*qwen3-coder*", "qwen3_coder"),
    ("*qwen3.[5-9]*", "qwen3_coder"),
    ("*qwen2.5-coder*", "qwen2_5_coder"),
    ("*qwen3*", "qwen3"),
    ("*qwen2*", "hermes"),
    ("*qwq*", "hermes"),
    ("*hermes*", "hermes"),
    ("*nemotron-3*", "nemotron_v3"),
    ("*nemotron-nano*v2*", "nemotron_deci"),
    ("*nemotron*ultra*", "nemotron_deci"),
    ("*deepseek-v4.1*", "deepseek_v4_1"),
    ("*deepseek-v4*", "deepseek_v4"),
    ("*deepseek-v3.2-exp*", "deepseek_v3_1"),
    ("*deepseek-v3.2*", "deepseek_v3_2"),
    ("*deepseek-v3.1*", "deepseek_v3_1"),
    ("*deepseek-v3*", "deepseek_v3"),
    ("*deepseek-r1*", "deepseek_r1"),
    ("*kimi-k3*", "kimi_k3"),
    ("*kimi-k2.[5-9]*", "kimi_k2_5"),
    ("*kimi-k2*", "kimi_k2"),
    ("*kimi-vl*", "kimi_vl"),
    ("*glm-4.[56]*", "glm45"),
    ("*glm-4.7*", "glm47"),
    ("*glm-5*", "glm47"),
    ("*minimax-m1*", "minimax_m1"),
    ("*minimax-m2*", "minimax_m2"),
    ("*minimax-m3*", "minimax_m3"),
    ("*llama-4*", "llama4_pythonic"),
    ("*llama-3*", "llama3_json"),
    ("*mistral*", "mistral"),
    ("*ministral*", "mistral"),
    ("*devstral*", "mistral"),
    ("*magistral*", "mistral"),
    ("*granite-4*", "hermes"),
    ("*granite-3*", "granite"),
    ("*gemma-4*", "gemma4"),
    ("*functiongemma*", "functiongemma"),
    ("*seed-oss*", "seed_oss"),
    ("*step-3.[5-7]*", "step3p5"),
    ("*step3*", "step3"),
    ("*ernie-4.5*", "ernie45"),
    ("*hunyuan-a13b*", "hunyuan_a13b"),
    ("*hy3*", "hy_v3"),
    ("*lfm2*", "lfm2"),
    ("*olmo-3*", "olmo3"),
    ("*internlm*", "internlm2"),
    ("*intern-s1*", "internlm2"),
    ("*longcat*", "longcat"),
    ("*laguna*", "poolside_v1"),
    ("*mimo-v2*", "mimo"),
    ("*mimo-vl*", "hermes"),
    ("*phi-4-mini*", "phi4_mini"),
    ("*jamba*", "jamba"),
    ("*command-a*", "cohere_command3"),
    ("*command-r7b*", "cohere_command3"),
    ("*command-r-plus*", "command_r_plus"),
    ("*apertus*", "apertus"),
    ("*apriel-1.6*", "apriel_1_6"),
    ("*apriel-1.5*", "apriel_1_5"),
    ("*functionary*v3.2*", "functionary_v3_2"),
    ("*functionary*v3.1*", "functionary_v3_1"),
    ("*firefunction-v2*", "firefunction_v2"),
    ("*muse-glimmer*", "muse_glimmer"),
    ("*inkling*", "inkling"),
    ("*minicpm5*", "minicpm5"),
    ("*solar-open*", "solar"),
    ("*gigachat3*", "gigachat3"),
    ("*xlam*", "xlam"),
    ("*sarashina*", "sarashina"),
    ("*dots*", "dots"),
    ("*toolace*", "pythonic"),
)

# Vocabularies that several families share: the tokens alone do not tell which of them writes.
SHARED: Final = {"<tool_call>": ("hermes", "qwen3_coder", "glm45"), "<think>": (), "</think>": ()}


def detect(model_id: str = "", template: str = "", special_tokens: Iterable[str] = ()) -> Detection:
    """The dialect that template text (or else the vocabulary) shows; the id is asked only where they do not decide.

    The template wins over the id, and `why` says if they disagree."""
    named = _by_id(model_id)
    if template:
        found = _first(template)
        if found is not None and found.dialect != "think":
            why = f"the template writes {_quoted(found.texts)}"
            if named and not _same(named, found.dialect):
                why += f"; by its id {model_id!r} one would expect {named}"
            return _answer(found.dialect, why)
        if named:
            return _answer(named, f"the template shows no call syntax; the id {model_id!r} is known")
        if found is not None:
            return _answer("think", "the template writes thoughts in <think> and shows no call syntax")
        return Detection(
            None, "the template shows neither reasoning nor calls, and the id is not known; name a dialect"
        )
    tokens = set(special_tokens)
    if tokens:
        found = _first("\n".join(sorted(tokens - set(SHARED))))
        if found is not None:
            return _answer(found.dialect, f"the vocabulary has {_quoted(found.texts)}")
        shared = [name for token in sorted(tokens) for name in SHARED.get(token, ())]
        if shared and not named:
            return Detection(
                None,
                "the vocabulary has <tool_call>, which several families use differently; give a template or a dialect",
                tuple(shared),
            )
    if named:
        return _answer(named, f"the id {model_id!r} is known; there is no template to prove it")
    return Detection(None, "there is no template, and neither the id nor the vocabulary is known; name a dialect")


def _first(text: str) -> Signature | None:
    for signature in SIGNATURES:
        if all(part in text for part in signature.texts) and not any(part in text for part in signature.never):
            return signature
    return None


def _by_id(model_id: str) -> str:
    lowered = model_id.lower().replace("_", "-")
    return next((name for pattern, name in IDS if fnmatchcase(lowered, pattern)), "")


def _same(one: str, other: str) -> bool:
    try:
        left, right = resolve(one), resolve(other)
    except UnknownDialect:
        return one == other
    return left.calls == right.calls and left.router == right.router


def _quoted(texts: tuple[str, ...]) -> str:
    return " and ".join(texts)


def _answer(name: str, why: str) -> Detection:
    try:
        return Detection(resolve(name), why, (name,))
    except UnknownDialect:
        return Detection(None, f"{why}, but there is no dialect {name!r}", (name,))
