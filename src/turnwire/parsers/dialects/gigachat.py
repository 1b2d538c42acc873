"""GigaChat 3: a JSON call behind a change of role (3.0) or behind a marker (3.1)."""

from __future__ import annotations

from turnwire.parsers.codecs.envelope import Envelope
from turnwire.parsers.dialect import Dialect

__all__ = ["DIALECTS"]

ROLE = "function call<|role_sep|>"

DIALECTS = (
    Dialect(
        name="gigachat3",
        calls=(
            Envelope(
                wrappers=(
                    ("<|function_call|>", ""),
                    (f"<|message_sep|>\n\n{ROLE}", ""),
                    (f"<|message_sep|>\n{ROLE}", ""),
                    (f"<|message_sep|>{ROLE}", ""),
                    (ROLE, ""),
                )
            ),
        ),
        wrappers=("assistant<|role_sep|>",),
        ends=("</s>", "<|message_sep|>"),
        aliases=("gigachat", "gigachat3_1"),
    ),
)
