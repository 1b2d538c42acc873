"""Functionary: a recipient line behind `>>>` (3.2), or JSON in a tag that carries the name (3.1)."""

from __future__ import annotations

from turnwire.parsers.codecs.channels import Channels, Header, Route
from turnwire.parsers.codecs.named import Named
from turnwire.parsers.dialect import Dialect

__all__ = ["DIALECTS"]


def route(header: Header) -> Route | None:
    """`all` is the user, an offered tool is called; anything else behind `>>>` is text."""
    name = header.text.strip()
    if name == "all":
        return Route("text")
    return Route("call", name) if name in header.tools else None


DIALECTS = (
    Dialect(
        name="functionary_v3_2",
        router=Channels(
            opens=(">>>",),
            bodies=("\n",),
            closes=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
            rule=route,
            hints=("",),
            hopeless=r"[\w.:/-]{65}|[\w.:/-]*[^\w.:/-]",
        ),
        aliases=("functionary", "functionary_3_2", "functionary_medium_v3_2", "functionary_small_v3_2"),
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
    ),
)
