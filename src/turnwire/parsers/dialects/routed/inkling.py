"""Inkling: blocks typed by a marker after the message opener, calls as JSON objects.

Promise: the marker of a block says what it is; the label before it is not shown.
"""

from __future__ import annotations

from typing import Final

from turnwire.parsers.codecs.channels import Channels, Header, Hints, Route
from turnwire.parsers.codecs.envelope import Envelope, Keys
from turnwire.parsers.dialect import Dialect, Signature
from turnwire.parsers.writing import CallForm

__all__ = ["DIALECTS"]

CALL: Final = "<|content_invoke_tool_json|>"
ENDS: Final = ("<|end_message|>", "<|content_model_end_sampling|>")
ROUTES: Final = {
    "<|content_thinking|>": Route("reasoning"),
    "<|content_text|>": Route("text"),
    "<|content_invoke_tool_text|>": Route("text"),
    "<|content_tool_error|>": Route("text"),
    CALL: Route("call"),
}


def route(header: Header) -> Route | None:
    """The marker decides; the text before it is a label."""
    return ROUTES.get(header.body, Route("text"))


DIALECTS = (
    Dialect(
        name="inkling",
        router=Channels(
            opens=("<|message_model|>",),
            bodies=tuple(ROUTES),
            closes=ENDS,
            rule=route,
            hints=Hints(("",), r"[\w.:/-]{65}|[\w.:/-]*[^\w.:/-]"),
            calls=Envelope(
                wrappers=tuple((CALL, end) for end in ENDS), keys=Keys(arguments=("args", "arguments", "parameters"))
            ),
        ),
        reasoning_aliases=("inkling",),
        writes=CallForm(
            head="{name}" + CALL + '{{"name": "{name}", "args": ',
            tail="}}" + ENDS[0],
            between="<|message_model|>",
            thought=("<|content_thinking|>", ENDS[0], "<|message_model|>"),
            answer="<|content_text|>",
        ),
        known_by=(Signature((CALL,)),),
        ids=("inkling",),
    ),
)
