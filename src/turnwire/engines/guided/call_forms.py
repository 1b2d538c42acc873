"""How each dialect writes a call, as text around a name and its arguments: what guided decoding must make it write.

Promise: a call in one of these forms reads natively to the model and to the dialect's parser. `{name}`, `{key}`,
`{index}` and `{string}` are filled in; a dialect without a form is one whose arguments no grammar here can spell.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["CALL_FORMS", "CallForm", "Tagged", "call_form"]


class Tagged(msgspec.Struct, frozen=True):
    """Arguments one by one: `open`, the value, `close`, with `between` them. Strings are written `raw` or as `json`;
    everything else is JSON. A `{string}` in `open` says whether the value is text."""

    open: str
    close: str
    between: str = ""
    strings: Literal["raw", "json"] = "raw"


class CallForm(msgspec.Struct, frozen=True, kw_only=True):
    """One family's calls. `section` stands around all calls of a turn, `head` and `tail` around one's arguments,
    `between` two calls, unless a turn ends with each (`single`). Where the family routes by headers, `thought` is how
    a thought before them is written, and `answer` the header of plain text."""

    head: str
    tail: str
    section: tuple[str, str] = ("", "")
    between: str = ""
    arguments: Tagged | None = None
    single: bool = False
    thought: tuple[str, str, str] | None = None
    answer: str = ""

    @property
    def opener(self) -> str:
        """The fixed text that every call begins with."""
        return self.section[0] + self.head.replace("{{", "\0").partition("{")[0].replace("\0", "{")

    @property
    def wraps_object(self) -> bool:
        """Whether one JSON object holds name and arguments, so that a JSON schema alone can describe the call."""
        return self.arguments is None and self.head.endswith(": ")

    def open_call(self, name: str, index: int | str) -> str:
        """The head of a call, filled in."""
        return self.head.format(name=name, index=index)

    def close_call(self) -> str:
        """The tail of a call, filled in."""
        return self.tail.format()


def _object(
    before: str, after: str, *, key: str = "name", arguments: str = "arguments", between: str = "\n"
) -> CallForm:
    return CallForm(head=before + f'{{{{"{key}": "{{name}}", "{arguments}": ', tail="}}" + after, between=between)


def _list(before: str, after: str, *, key: str = "name", arguments: str = "arguments", between: str = ", ") -> CallForm:
    return CallForm(
        section=(before, after), head=f'{{{{"{key}": "{{name}}", "{arguments}": ', tail="}}", between=between
    )


def _qwen_xml(before: str = "<tool_call>", after: str = "</tool_call>", break_: str = "\n") -> CallForm:
    return CallForm(
        head=before + "\n<function={name}>\n",
        arguments=Tagged(f"<parameter={{key}}>{break_}", f"{break_}</parameter>\n"),
        tail="</function>\n" + after,
        between="\n",
    )


def _dsml(block: str, gap: str = "") -> CallForm:
    mark = f"｜DSML｜{gap}"
    return CallForm(
        section=(f"<{mark}{block}>\n", f"</{mark}{block}>"),
        head=f'<{mark}invoke name="{{name}}">\n',
        arguments=Tagged(f'<{mark}parameter name="{{key}}" string="{{string}}">', f"</{mark}parameter>\n"),
        tail=f"</{mark}invoke>\n",
    )


_HERMES = _object("<tool_call>\n", "\n</tool_call>")
_GLM45 = CallForm(
    head="<tool_call>{name}\n",
    arguments=Tagged("<arg_key>{key}</arg_key>\n<arg_value>", "</arg_value>\n"),
    tail="</tool_call>",
    between="\n",
)
_GLM47 = CallForm(
    head="<tool_call>{name}",
    arguments=Tagged("<arg_key>{key}</arg_key><arg_value>", "</arg_value>"),
    tail="</tool_call>",
)
_KIMI_K2 = CallForm(
    section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    head="<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>",
    tail="<|tool_call_end|>",
)
_COHERE = CallForm(
    section=("<|START_ACTION|>[\n", "\n]<|END_ACTION|>"),
    head='    {{"tool_call_id": "{index}", "tool_name": "{name}", "parameters": ',
    tail="}}",
    between=",\n",
)
_PYTHONIC = Tagged("{key}=", "", ", ", "json")

CALL_FORMS: dict[str, CallForm] = {
    **dict.fromkeys(("hermes", "qwen3", "qwen3_thinking", "qwen2_5_coder", "trinity", "ernie45"), _HERMES),
    "longcat": _object("<longcat_tool_call>\n", "\n</longcat_tool_call>"),
    "internlm2": _object("<|action_start|><|plugin|>\n", "\n<|action_end|>", arguments="parameters"),
    "llama3_json": _object("", "", arguments="parameters", between="; "),
    "minimax_m1": CallForm(
        section=("<tool_calls>\n", "</tool_calls>"), head='{{"name": "{name}", "arguments": ', tail="}}\n"
    ),
    "nemotron_deci": _list("<TOOLCALL>[", "]</TOOLCALL>"),
    "jamba": _list("<tool_calls>[\n", "\n]</tool_calls>", between=",\n"),
    "hunyuan_a13b": _list("<tool_calls>[", "]</tool_calls>"),
    "granite": _list("<|tool_call|>[", "]"),
    "granite_20b_fc": _object("<function_call> ", "", between=" "),
    "functionary_v3_1": CallForm(head="<function={name}>", tail="</function>"),
    "phi4_mini": _list("functools[", "]"),
    "xlam": _list("[", "]"),
    "apertus": CallForm(
        section=("<|tools_prefix|>[", "]<|tools_suffix|>"), head='{{"{name}": ', tail="}}", between=", "
    ),
    "cohere_command3": _COHERE,
    "cohere_command4": _COHERE,
    **dict.fromkeys(("deepseek_v3", "deepseek_r1"), CallForm(
        section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        head="<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n",
        tail="\n```<｜tool▁call▁end｜>",
        between="\n",
    )),
    "deepseek_v3_1": CallForm(
        section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        head="<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>",
        tail="<｜tool▁call▁end｜>",
    ),
    "deepseek_v3_2": _dsml("function_calls"),
    "deepseek_v4": _dsml("tool_calls"),
    "deepseek_v4_1": _dsml("calls", " "),
    "kimi_k2": _KIMI_K2,
    "kimi_k2_5": _KIMI_K2,
    "mistral": CallForm(head="[TOOL_CALLS]{name}[ARGS]", tail=""),
    "harmony": CallForm(
        head="<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>",
        tail="",
        single=True,
        thought=("<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant"),
        answer="<|channel|>final<|message|>",
    ),
    "qwen3_coder": _qwen_xml(),
    "nemotron_v3": _qwen_xml(),
    "step3p5": _qwen_xml(),
    "mimo": _qwen_xml(break_=""),
    "seed_oss": _qwen_xml("<seed:tool_call>", "</seed:tool_call>", ""),
    "glm45": _GLM45,
    "poolside_v1": _GLM45,
    "glm47": _GLM47,
    "ling3": _GLM47,
    "hy_v3": CallForm(
        section=("<tool_calls>\n", "</tool_calls>"),
        head="<tool_call>{name}<tool_sep>\n",
        arguments=Tagged("<arg_key>{key}</arg_key>\n<arg_value>", "</arg_value>\n"),
        tail="</tool_call>\n",
    ),
    "minimax_m2": CallForm(
        section=("<minimax:tool_call>\n", "</minimax:tool_call>"),
        head='<invoke name="{name}">\n',
        arguments=Tagged('<parameter name="{key}">', "</parameter>\n"),
        tail="</invoke>\n",
    ),
    "step3": CallForm(
        section=("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"),
        head='<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">',
        arguments=Tagged('<steptml:parameter name="{key}">', "</steptml:parameter>"),
        tail="</steptml:invoke><｜tool_call_end｜>",
    ),
    "minicpm5": CallForm(
        head='<function name="{name}">', arguments=Tagged('<param name="{key}">', "</param>"), tail="</function>"
    ),
    "pythonic": CallForm(section=("[", "]"), head="{name}(", arguments=_PYTHONIC, tail=")", between=", "),
    "llama4_pythonic": CallForm(
        section=("<|python_start|>[", "]<|python_end|>"), head="{name}(", arguments=_PYTHONIC, tail=")", between=", "
    ),
    "lfm2": CallForm(
        section=("<|tool_call_start|>[", "]<|tool_call_end|>"),
        head="{name}(", arguments=_PYTHONIC, tail=")", between=", ",
    ),
    "olmo3": CallForm(
        section=("<function_calls>", "</function_calls>"), head="{name}(", arguments=_PYTHONIC, tail=")", between="\n"
    ),
}  # fmt: skip
"""By the name of the dialect whose calls they are."""


def call_form(dialect: str) -> CallForm | None:
    """The form of a dialect by its name; one combined with another's reasoning keeps its calls."""
    return CALL_FORMS.get(dialect.partition("+")[0])
