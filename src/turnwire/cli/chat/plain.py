"""What a model wrote, made safe for a terminal.

Promise: no character of it moves the cursor, changes colours or turns the direction of the text; what is removed from
prose is spelled out in arguments, because a person decides by them.
"""

from __future__ import annotations

__all__ = ["prose", "spelled"]

_CONTROLS = [*range(0x20), *range(0x7F, 0xA0)]
_DIRECTIONS = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_DROP = dict.fromkeys((code for code in _CONTROLS if chr(code) not in "\n\t"), "")
_SPELL = {code: f"\\u{code:04x}" for code in [*_CONTROLS, *_DIRECTIONS]}


def prose(text: str) -> str:
    """Text for reading: control characters are left out, line ends and tabs stay."""
    return text.translate(_DROP)


def spelled(text: str) -> str:
    """One line in which every invisible control character can be seen."""
    return text.translate(_SPELL)
