"""`turnwire chat`: talk to a model in the terminal, or in a pipe.

Promise: in a pipe only the answer is written to standard output.
"""

from __future__ import annotations

from pathlib import Path

import click

from turnwire.cli.gateway import URL_DEFAULT, URL_VARIABLE, gateway_url

__all__ = ["chat"]


@click.command()
@click.option("--url", envvar=URL_VARIABLE, help=f"The server.  {URL_DEFAULT}")
@click.option("--key", envvar="TURNWIRE_API_KEY", help="The server's key.  [default: $TURNWIRE_API_KEY]")
@click.option("--model", help="Model id.  [default: the server's first]")
@click.option("--system", default="", help="Instructions for the model.")
@click.option(
    "--tools",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A Python file; its public functions are tools for the model. The file is run.",
)
@click.option(
    "--yes", is_flag=True, help="Run tools without asking; without a terminal to ask on, none runs otherwise."
)
@click.option("--budget", type=int, default=16_000, show_default=True, help="Tokens of conversation to remember.")
@click.option("--max-tokens", type=int, help="Bound on each answer.")
@click.option("--temperature", type=float)
@click.option("--thoughts", is_flag=True, help="Write the model's thoughts out instead of folding them.")
@click.option(
    "--load", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Go on with a saved conversation."
)
@click.argument("question", required=False)
def chat(
    url: str | None,
    key: str | None,
    model: str | None,
    system: str,
    tools: Path | None,
    yes: bool,
    budget: int,
    max_tokens: int | None,
    temperature: float | None,
    thoughts: bool,
    load: Path | None,
    question: str | None,
) -> None:
    """Talk to a model. With QUESTION, answer it and stop; what is piped in goes with it. Without, a piped input is one
    question per line, and a terminal is a conversation."""
    from turnwire.cli.chat.loop import Request, run

    options = {"max_tokens": max_tokens, "temperature": temperature}
    run(
        Request(
            url=gateway_url(url, key),
            key=key,
            model=model,
            system=system,
            tools=tools,
            yes=yes,
            budget=budget,
            options={name: value for name, value in options.items() if value is not None},
            thoughts=thoughts,
            load=load,
            question=question,
        )
    )
