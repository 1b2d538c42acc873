"""The stable codes a parser may put into a Note, each with what it means for a reader of the log.

Promise: a code keeps its meaning; every note that a parser makes has one of them.
"""

from __future__ import annotations

from typing import Final

__all__ = ["NOTES"]

NOTES: Final[dict[str, str]] = {
    "call.malformed": "the arguments are not valid JSON; they are passed on as the model wrote them",
    "call.truncated": "the output ended inside a call; it must not be run",
    "call.unknown_tool": "the model called a tool that was not offered",
    "call.name_completed": "the tool was called without its namespace; the only tool that can be meant was taken",
    "call.unnamed": "a call without a usable name was dropped; its text is kept in the raw output",
    "call.noise": "text inside a call that belongs to no argument was left out",
    "call.echo": "the calls were written a second time, word for word, after their end; the repetition was left out",
    "call.duplicate_argument": "an argument was given twice; the last one counts",
    "call.id_inferred": "the call's header named no tool; the only tool whose schema fits was taken",
    "reasoning.stray_closer": "a reasoning closer without an open thought was left out",
    "rescue.bare_json": "a call written as plain or fenced JSON was accepted: tool and arguments fit",
    "rescue.call_in_reasoning": "a call began inside an unclosed thought; the thought was closed before it",
    "rescue.control_character": "a raw control character inside a JSON string was escaped",
    "rescue.duplicate_closer": "a closing marker written twice was left out",
    "rescue.header": "a message header broke the format; the nearest meaning was taken",
    "rescue.missing_closer": "a closing marker was missing; the next marker or the end of output stood in for it",
    "rescue.missing_comma": "the comma between two arguments was missing",
    "rescue.missing_wrapper": "a call came without the wrapper its format asks for",
    "rescue.python_literal": "Python spelling in a JSON place was rewritten as JSON",
    "rescue.quoted_closer": "a closing marker inside a value was taken as text, because nothing that may follow it did",
    "rescue.string_arguments": "arguments that came as a JSON string were decoded once",
    "rescue.unwrapped_arguments": "arguments wrapped into one parameter were unwrapped",
    "rescue.wrong_closer": "another format's closing marker was accepted",
    "section.noise": "text between a call section's opening and its calls was left out",
}
