"""How the known byte-level tokenizers split text into words before merging: one regular expression list per name.

Promise: every expression here ends a match between an ASCII letter and a following blank, whatever is around
them, so text may be cut there without changing a single token. (A letter is only ever followed by letters, marks or an
apostrophe inside one match, and no expression looks back; what an expression sees of the text after a cut is a blank
or the end, and both end a run of letters.)
"""

from __future__ import annotations

__all__ = ["BY_FILE_NAME", "BY_GGUF_NAME", "PATTERNS", "SAFE_EXPRESSIONS"]

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_UPPER_NOT_HAN = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LOWER_NOT_HAN = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"


def _plain(digits: str) -> str:
    return rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANKS}"


def _cased(upper: str, lower: str, ending: str, digits: str, tail: str = "/") -> str:
    head = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{head}{upper}*{lower}+{ending}|{head}{upper}+{lower}*{ending}|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n{tail}]*|{_BLANKS}"
    )


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = _plain(r"\p{N}{1,3}")
_QWEN2 = _plain(r"\p{N}")
_QWEN35 = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_BLANKS}"
_O200K = _cased(_UPPER, _LOWER, _ENDINGS + "?", r"\p{N}{1,3}")
_TEKKEN = _cased(_UPPER, _LOWER, "", r"\p{N}")
_KIMI = r"[\p{Han}]+|" + _cased(_UPPER_NOT_HAN, _LOWER_NOT_HAN, _ENDINGS + "?", r"\p{N}{1,3}", tail="")
_DEEPSEEK_DIGITS = r"\p{N}{1,3}"
_DEEPSEEK_CJK = "[一-龥぀-ゟ゠-ヿ]+"
_DEEPSEEK_WORDS = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)
_OWN = r" ?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

PATTERNS: dict[str, tuple[str, ...]] = {
    "gpt2": (_GPT2,),
    "cl100k": (_CL100K,),
    "o200k": (_O200K,),
    "qwen2": (_QWEN2,),
    "qwen35": (_QWEN35,),
    "tekken": (_TEKKEN,),
    "kimi-k2": (_KIMI,),
    "deepseek-v3": (_DEEPSEEK_DIGITS, _DEEPSEEK_CJK, _DEEPSEEK_WORDS),
    "smollm": (r"\p{N}", _GPT2),
    "turnwire": (_OWN,),
}

BY_GGUF_NAME: dict[str, str] = {
    "gpt-2": "gpt2",
    "llama-bpe": "cl100k",
    "llama3": "cl100k",
    "llama-v3": "cl100k",
    "lfm2": "cl100k",
    "pixtral": "cl100k",
    "falcon3": "cl100k",
    "glm4": "cl100k",
    "glm5": "cl100k",
    "chatglm-bpe": "cl100k",
    "qwen2": "qwen2",
    "deepseek-r1-qwen": "qwen2",
    "qwen35": "qwen35",
    "smollm": "smollm",
    "tekken": "tekken",
    "gpt-4o": "o200k",
    "llama4": "o200k",
    "kimi-k2": "kimi-k2",
    "deepseek-v3": "deepseek-v3",
    "turnwire": "turnwire",
}
"""What GGUF's `tokenizer.ggml.pre` calls them."""

BY_FILE_NAME: tuple[tuple[str, str], ...] = (
    ("o200k", "o200k"),
    ("cl100k", "cl100k"),
    ("qwen3_5", "qwen35"),
    ("qwen3_6", "qwen35"),
    ("qwen", "qwen2"),
    ("kimi", "kimi-k2"),
)
"""Which pattern a ranks file goes with when its name says so; the first name contained wins."""

SAFE_EXPRESSIONS: frozenset[str] = frozenset(
    expression for expressions in PATTERNS.values() for expression in expressions
)
