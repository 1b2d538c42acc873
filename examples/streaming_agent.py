"""A streaming agent in one file: tools, memory, retrieval, a check of the answer, and permission before a tool runs.

python streaming_agent.py [URL]
"""

from __future__ import annotations

import sys

from turnwire.agent import (
    Answered,
    Approval,
    ChatSession,
    Grounding,
    Library,
    Memory,
    Refused,
    TextDelta,
    ToolFinished,
    ToolRequest,
    ToolStarted,
)

FACTS = [
    "The chess club meets every Thursday at 18:00 in the old library.",
    "The computer lab is open on weekdays from 10:00 to 18:00.",
    "Bicycles can be borrowed from the porter for free.",
]
QUESTIONS = ["When does the chess club meet?", "How many days until that?"]


def days_until(weekday: str) -> str:
    """How many days until a weekday.

    Args:
        weekday: For example Thursday.
    """
    return f"{weekday} is in {len(weekday) % 7} days."


def approve(request: ToolRequest) -> Approval:
    """A program would ask a person here. These tools only read, so they may always run."""
    print(f"  (may {request.name} run with {request.arguments}? always)")
    return "always"


def main(url: str = "http://127.0.0.1:8390") -> None:
    """Ask the questions, and show everything as it happens."""
    library = Library(url, "default", FACTS)
    search = library.tool("search_facts", "Search facts about the campus.")
    with ChatSession(
        url,
        tools=[search, days_until],
        instructions="Use the tools; say nothing that they do not tell you.",
        memory=Memory(budget=4_000),
        grounding=Grounding("I do not know."),
        approve=approve,
    ) as session:
        for question in QUESTIONS:
            print(f"> {question}")
            for event in session.stream(question):
                if isinstance(event, TextDelta):
                    print(event.text, end="", flush=True)
                elif isinstance(event, ToolStarted):
                    print(f"  {event.name} {event.arguments}{' (while the turn streams)' if event.early else ''}")
                elif isinstance(event, ToolFinished):
                    print(f"  -> {event.content.splitlines()[0]} ({event.seconds:.2f} s)")
                elif isinstance(event, Refused):
                    print(f"\n  (withheld, because nothing found supports it: {event.withheld!r})")
                elif isinstance(event, Answered):
                    print(f"\n  ({event.steps} steps, {event.tokens.prompt} tokens read, {event.tokens.output} out)")


if __name__ == "__main__":
    main(*sys.argv[1:2])
