"""A new family is one table: this one is made up here, and the laws hold for it at once."""

from running import parse
from samples import TOOLS

from turnwire.parsers import Dialect, Reasoning, Start, start_state
from turnwire.parsers.codecs.tagged import Headers, Tagged

ACME = Dialect(
    name="acme",
    reasoning=Reasoning(open=("<ponder>",), close=("</ponder>",)),
    calls=(
        Tagged(
            sections=(("<acts>", "</acts>"),),
            call_open=("<act",),
            call_close=("</act>",),
            param_open=("<with",),
            param_close=("</with>",),
            headers=Headers(name_attribute="tool", key_attribute="key"),
        ),
    ),
    ends=("<over/>",),
)


def test_a_made_up_family_works():
    text = (
        '<ponder>Which file?</ponder>\nThis one.\n<acts>\n<act tool="edit">\n<with key="path">a < b</with>\n'
        '<with key="count">3</with>\n</act>\n<act tool="ls"></act>\n</acts>\nDone.<over/>'
    )
    turn = parse(ACME, text, TOOLS)
    assert [(b.kind, b.name, b.text) for b in turn.blocks] == [
        ("reasoning", "", "Which file?"),
        ("text", "", "This one."),
        ("tool_call", "edit", '{"path": "a < b", "count": 3}'),
        ("tool_call", "ls", "{}"),
        ("text", "", "Done."),
    ]
    assert turn.notes == []
    assert start_state("user: hi\nassistant: <ponder>", ACME) == Start("reasoning")
