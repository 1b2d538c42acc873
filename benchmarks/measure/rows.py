"""The lines of the README's tables of gateways: which case of which measurement, and what it is called.

Promise: the tables differ in their columns, never in what a line says; a line without a measurement is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.measure.results import Result

__all__ = ["APIS", "COMMANDS", "GATEWAYS", "ROWS", "Row", "measured_rows"]

APIS = ("chat", "messages", "responses")
# The name in result files, and the tables'.
GATEWAYS = {
    "turnwire": "Turnwire",
    "turnwire-core": "Turnwire, `vllm-core:`",
    "vllm-rust": "vLLM's Rust frontend",
    "smg": "smg",
    "dynamo": "Dynamo",
    "litellm": "LiteLLM",
}


class Row(NamedTuple):
    """One line of a table: a case of a command, and the figure that it shows."""

    command: str
    case: str
    figure: str
    text: str


ROWS = (
    Row("stream", "paced, 64 x 50 tokens/s", "cpu_us", "CPU per output token, 64 streams x 50 tokens/s, µs"),
    Row("stream", "saturated, 64 streams", "cpu_us", "the same, as fast as the engine sends, µs"),
    Row("turn_cost", "20 messages, growing", "cpu_ms", "CPU per turn of an agent, 20 messages before it, ms"),
    Row(
        "turn_cost", "20 messages with 30 tools, growing", "cpu_ms", "the same with 30 tools, as coding agents have, ms"
    ),
    Row("turn_cost", "20 messages, tools", "cpu_ms", "the same in a loop of tools, fifty tokens of answer, ms"),
    Row("turn_cost", "200 messages, growing", "cpu_ms", "the same, 200 messages of 200K characters, ms"),
    Row("turn_cost", "200 messages, edited", "cpu_ms", "the same, and one in the middle was edited, ms"),
    Row("first_token", "first request", "first_ms", "time to first token of an API's first request, ms"),
    Row("first_token", "cold", "first_ms", "time to first token added, 52K tokens never seen, ms"),
    Row("first_token", "growing", "first_ms", "the same, the conversation goes on, ms"),
    Row("lateness", "64 x 50 tokens/s", "p99_ms", "lateness of a token, 64 streams x 50 tokens/s, p99, ms"),
    Row("loop_pauses", "4 bodies of 30 MB", "most_ms", "longest wait of others while four 30 MB bodies arrive, ms"),
    Row("loop_pauses", "4 bodies of 30 MB", "step_ms", "longest step of the event loop there, ms of CPU"),
    Row("memory", "1000 x 5 tokens/s", "rss_mib", "resident memory, 1,000 streams x 5 tokens/s, MiB"),
    Row("memory", "1000 x 30 tokens/s", "rss_mib", "resident memory, 1,000 streams x 30 tokens/s, MiB"),
    Row("memory", "1000 x 30 tokens/s", "p99_ms", "lateness of a token there, p99, ms"),
)
COMMANDS = tuple(dict.fromkeys(row.command for row in ROWS))


def measured_rows(results: Mapping[str, Result]) -> list[Row]:
    """The lines for which there are figures."""
    return [
        row
        for row in ROWS
        if row.command in results and any(cell.case == row.case for cell in results[row.command].cells)
    ]
