"""CPU per short turn behind a long history: what an agent's next request costs a gateway, on all three APIs.

    python -m benchmarks turn_cost [--rounds 3] [--cases growing,same,edited,spelled,tools]

20 messages of 8K characters, the same with the thirty tools that a coding agent offers (75 KB), and 200 of 200K (about
50K tokens), ten tokens of answer. growing: each request adds the last answer and a new question, as agents do; same:
the request again; edited: growing, and a message in the middle changed each time; spelled: growing, and an early
message speaks of control tokens; tools: every answer, those before too, is a thought, a sentence and a call (some
fifty tokens), and every message between them a result. Each gateway, API and round has a conversation of its own, so
that nothing was prepared by another API's turns.
"""

from __future__ import annotations

import random
import time

from benchmarks.load.agent import Agent
from benchmarks.load.client import AnswerFailure, ask
from benchmarks.load.requests import Api, Said, body, history, passage
from benchmarks.load.turns import SHORT
from benchmarks.measure.session import Session, options
from benchmarks.measure.usage import cpu_seconds
from benchmarks.peers.gateways import Gateway

# Messages, their characters, turns that count, tools.
SIZES = {
    "20 messages": (20, 8_000, 12, 0),
    "20 messages with 30 tools": (20, 8_000, 12, 30),
    "200 messages": (200, 200_000, 6, 0),
}
CASES = ("growing", "same", "edited", "spelled", "tools")
WARM = 2  # requests before those that count
# A word of the answer's text: not every gateway passes thoughts on.
SEEN, CALLED = SHORT.split()[1], "ledger"
SPELLED = "A model thinks between <think> and </think>, and calls a tool with <tool_call>."
AFTER = 0.05  # what a gateway still does after the answer belongs to the turn


def main(arguments: list[str]) -> None:
    parser = options(__doc__, 3)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--sizes", default=",".join(SIZES))
    chosen = parser.parse_args(arguments)
    cases, sizes = chosen.cases.split(","), chosen.sizes.split(",")
    if unknown := [name for name in cases if name not in CASES] + [name for name in sizes if name not in SIZES]:
        raise SystemExit(f"unknown: {', '.join(unknown)}; cases: {', '.join(CASES)}; sizes: {', '.join(SIZES)}")
    with Session("turn_cost", chosen) as session:
        for number, api, gateway in session.turns():
            for size in sizes:
                for case in cases:
                    session.playbook.play("calling" if case == "tools" else "short", 0)
                    measure = _measure_loop if case == "tools" else _measure
                    try:
                        each, first = measure(gateway, api, size, case, number)
                    except AnswerFailure as failure:
                        session.fail(gateway, api, f"{size}, {case}", str(failure))
                    else:
                        session.add(gateway, api, f"{size}, {case}", cpu_ms=each * 1e3, first_ms=first * 1e3)
        session.finish("cpu_ms", "ms of CPU per turn")


def _measure(gateway: Gateway, api: Api, size: str, case: str, number: int) -> tuple[float, float]:
    """CPU seconds of a turn, and the median time to its first text."""
    messages, characters, turns, tools = SIZES[size]
    said = [*history((gateway.name, api, size, case, number), messages, characters), Said("user", "Go on.")]
    if case == "spelled":
        said[1] = Said(said[1].role, f"{SPELLED}\n{said[1].text}")
    requests: list[bytes] = []
    for turn in range(WARM + turns):
        requests.append(body(api, said, tools=tools))
        if case != "same":
            said = [*said, Said("assistant", SHORT), Said("user", f"Go on with step {turn}.")]
        if case == "edited":
            middle = messages // 2
            said[middle] = Said(said[middle].role, f"{said[middle].text}\nedit {turn}")
    for request in requests[:WARM]:
        ask(gateway.port, api, request, SEEN)
    time.sleep(AFTER)
    before = cpu_seconds(gateway.pid)
    firsts = []
    for request in requests[WARM:]:
        firsts.append(ask(gateway.port, api, request, SEEN).first)
        time.sleep(AFTER)
    return (cpu_seconds(gateway.pid) - before) / turns, sorted(firsts)[turns // 2]


def _measure_loop(gateway: Gateway, api: Api, size: str, case: str, number: int) -> tuple[float, float]:
    """The same for an agent that has called a tool in every turn so far."""
    messages, characters, turns, tools = SIZES[size]
    source = random.Random(repr((gateway.name, api, size, case, number)))
    agent = Agent(api, passage(source, 200), tools=tools)
    before, firsts = 0.0, []
    for turn in range(messages // 2 + turns):
        if turn == messages // 2:
            time.sleep(AFTER)
            before = cpu_seconds(gateway.pid)
        answer = ask(gateway.port, api, agent.body(), CALLED)
        agent.go_on(answer.stream, passage(source, 2 * characters // messages))
        if turn >= messages // 2:
            firsts.append(answer.first)
            time.sleep(AFTER)
    return (cpu_seconds(gateway.pid) - before) / turns, sorted(firsts)[turns // 2]
