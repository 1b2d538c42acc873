"""Functionary: a recipient line after `>>>` (3.2), or JSON in a tag that carries the name (3.1).

Promise: a name that is not a tool is a call only where JSON follows it.
"""

from __future__ import annotations

import re

from turnwire.parsers.codecs.channels import Channels, Header, Hints, Route
from turnwire.parsers.codecs.named import Named
from turnwire.parsers.dialect import Dialect, Signature
from turnwire.parsers.writing import CallForm

__all__ = ["DIALECTS"]

_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}")


def route(header: Header) -> Route | None:
    """`all` is the user, an offered tool is called. Another name between messages is a call if JSON follows, inside
    of text it is text."""
    name = header.text.strip()
    if name == "all":
        return Route("text")
    if name in header.tools:
        return Route("call", name)
    return None if header.inside or _NAME.fullmatch(name) is None else Route("call", name, unsure=True)


DIALECTS = (
    Dialect(
        name="functionary_v3_2",
        router=Channels(
            opens=(">>>",),
            bodies=("\n",),
            closes=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
            rule=route,
            hints=Hints(("",), r"[\w.:/-]{65}|[\w.:/-]*[^\w.:/-]"),
            closed=False,
        ),
        aliases=("functionary", "functionary_3_2", "functionary_medium_v3_2", "functionary_small_v3_2"),
        # What comes before its calls is not a thought but a message to the user.
        writes=CallForm(head="{name}\n", tail="", between=">>>", thought=("all\n", ">>>", ""), answer="all\n"),
        known_by=(Signature((">>>all",)),),
        ids=("functionary*v3.2",),
    ),
    Dialect(
        name="functionary_v3_1",
        calls=(
            Named(
                header=r"\s*(?P<name>[^\s<>{}]+)\s*>(?P<rest>\s*)",
                call_open=("<function=",),
                call_close=("</function>",),
                hopeless=r"\s*[^\s>{]*(?:[\s<][^>{]|>\s*[^\s{<])",
            ),
        ),
        ends=("<|eom_id|>", "<|eot_id|>", "<|end_of_text|>"),
        aliases=("functionary_3_1", "functionary_medium_v3_1", "functionary_small_v3_1"),
        writes=CallForm(head="<function={name}>", tail="</function>"),
        known_by=(Signature(("<function=", "</function>"), ("<parameter=",)),),
        ids=("functionary*v3.1",),
    ),
)
