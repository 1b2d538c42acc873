"""The scenes that the rules look at: what is asked, which tools are offered, and what a stand-in says to it.

Promise: a scene is data. The question makes a small real model produce the turn, and the same turn is written out for
an engine stand-in, so that a cell is about the server and not about the model.
"""

from __future__ import annotations

import json

import msgspec

from turnwire.conformance.apis.interface import Tool

__all__ = ["PRINTED", "SCENES", "TOOLS", "Part", "Scene", "lines", "spoken"]

TOOLS = (
    Tool("get_weather", "The weather of a city.", {"city": "string"}),
    Tool("write_file", "Write text to a file.", {"path": "string", "content": "string"}),
)
_PAGE = "\n".join(f"line {n}: the quick brown fox jumps over the lazy dog" for n in range(1, 17))
_PROSE = "A harbour at dawn is quiet, and the boats lie still. " * 40


# What the shell prints in a real client's scene; no request has this word before the command has run.
PRINTED = "turnwire-ran"
_SHELL = "echo turn''wire-ran"


class Part(msgspec.Struct, frozen=True):
    """A part of a turn: a thought, a text, or a call with its arguments as the model spells them."""

    kind: str
    text: str
    name: str = ""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """A question and the turns that answer it, one for each time that the model is asked. `period` is the seconds
    between two tokens of a stand-in; `needs` is what a real model's turn must have to be judged."""

    name: str
    question: str
    turns: tuple[tuple[Part, ...], ...]
    tools: tuple[Tool, ...] = ()
    period: float = 0.0
    needs: str = "text"


def _think(text: str) -> Part:
    return Part("thinking", text)


def _say(text: str) -> Part:
    return Part("text", text)


def _call(name: str, **arguments: str) -> Part:
    return Part("call", json.dumps(arguments), name)


_RAN = (_think("It has printed its word."), _say("The command ran and printed one word."))
_DONE = (_think("The tool has answered, so I can tell."), _say("It is done: the tool answered as hoped."))

SCENES: dict[str, Scene] = {
    scene.name: scene
    for scene in (
        Scene(
            name="answer",
            question="Greet me in one short sentence, with a word in Japanese and an emoji of a parrot in it.",
            turns=(
                (
                    _think("A greeting is wanted, with two things in it."),
                    _say("Hello and こんにちは, naïve friend 🦜!"),
                ),
                (_think("More is asked."), _say("And once more: hello.")),
            ),
        ),
        Scene(
            name="call",
            question="What is the weather in Paris? Use the tool get_weather.",
            turns=(
                (
                    _think("The user wants the weather of Paris, and there is a tool for it."),
                    _say("I will look it up."),
                    _call("get_weather", city="Paris"),
                ),
                _DONE,
            ),
            tools=TOOLS,
            needs="call",
        ),
        Scene(
            name="spelling",
            question="What is the weather in Lisbon? Use the tool get_weather.",
            turns=(
                (_think("Lisbon is asked for."), Part("call", '{"city":"Lisbon"}', "get_weather")),
                _DONE,
            ),
            tools=TOOLS,
            needs="call",
        ),
        Scene(
            name="write",
            question="Write sixteen numbered lines of prose to /tmp/fox.txt with the tool write_file.",
            turns=(
                (_think("A file is to be written."), _call("write_file", path="/tmp/fox.txt", content=_PAGE)),  # noqa: S108
                _DONE,
            ),
            tools=TOOLS,
            period=0.008,
            needs="call",
        ),
        Scene(
            name="parallel",
            question=(
                "Do two things at once: get the weather in Oslo with get_weather, and write sixteen numbered lines of "
                "prose to /tmp/oslo.txt with write_file. Call both tools in this turn."
            ),
            turns=(
                (
                    _think("Two calls that do not depend on each other."),
                    _call("get_weather", city="Oslo"),
                    _call("write_file", path="/tmp/oslo.txt", content=_PAGE),  # noqa: S108
                ),
                _DONE,
            ),
            tools=TOOLS,
            period=0.008,
            needs="calls",
        ),
        Scene(
            name="mixed",
            question="Get the weather in Rome, then in Turin, with one call each, and say before each what you do.",
            turns=(
                (
                    _think("Two cities, one after the other."),
                    _say("First Rome."),
                    _call("get_weather", city="Rome"),
                    _say("Then Turin."),
                    _call("get_weather", city="Turin"),
                ),
                _DONE,
            ),
            tools=TOOLS,
            needs="calls",
        ),
        Scene(
            name="loop",
            question="Find out whether Bergen or Malmo is warmer. Ask get_weather about one city at a time.",
            turns=(
                (_think("I begin with the city of Bergen."), _call("get_weather", city="Bergen")),
                (_think("Bergen is known, now Malmo."), _call("get_weather", city="Malmo")),
                (_think("Both are known."), _say("Malmo is warmer.")),
            ),
            tools=TOOLS,
            needs="call",
        ),
        Scene(
            name="long",
            question="Describe a harbour at dawn in four hundred words.",
            turns=((_think("A long text is wanted."), _say(_PROSE.strip())),),
            period=0.01,
        ),
        # The tools of these two are the client's own.
        Scene(
            name="claude",
            question=f"Run the shell command {_SHELL} and tell me in one sentence that it ran.",
            turns=(
                (_think("A command is to be run."), _call("Bash", command=_SHELL, description="Print a word")),
                _RAN,
            ),
            needs="call",
        ),
        Scene(
            name="codex",
            question=f"Use the shell to run {_SHELL}, and tell me in one sentence that it ran.",
            turns=((_think("A command is to be run."), _call("exec_command", cmd=_SHELL)), _RAN),
            needs="call",
        ),
    )
}


def spoken(parts: tuple[Part, ...], *, opened: bool = False) -> str:
    """A turn as a model of the Hermes family writes it, with the line breaks of Qwen3's own template. `opened` is for
    prompts that have begun the thought."""
    said: list[str] = []
    for part in parts:
        if part.kind == "thinking":
            said.append(f"{'' if opened and not said else '<think>'}\n{part.text}\n</think>\n\n")
        elif part.kind == "text":
            said.append(part.text)
        else:
            call = f'{{"name": {json.dumps(part.name)}, "arguments": {part.text}}}'
            gap = "" if said and said[-1].endswith("\n") else "\n"
            said.append(f"{gap}<tool_call>\n{call}\n</tool_call>")
    return "".join(said).removeprefix("\n") if opened else "".join(said)


def lines() -> str:
    """The scenes as a script for `turnwire serve --engine scripted:FILE --dialect hermes`, with the built-in template,
    which opens a thought. Questions of no scene are greeted."""
    greeting = spoken(SCENES["answer"].turns[0], opened=True)
    made = [json.dumps({"text": greeting}, ensure_ascii=False) + "\n"]
    for scene in SCENES.values():
        for turn in scene.turns:
            line: dict[str, object] = {"text": spoken(turn, opened=True), "match": scene.question}
            if scene.period:
                line["delay_ms"] = scene.period * 1000
            made.append(json.dumps(line, ensure_ascii=False) + "\n")
    return "".join(made)
