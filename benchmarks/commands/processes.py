"""Tokens a second against the number of processes: `turnwire serve --workers N`, saturated by 64 streams each.

    python -m benchmarks processes [--processes 1,2] [--engines 1] [--loads 1] [--seconds 4] [--rounds 3] [--save]
                                   [--svg docs/images/processes.svg]

The engine and the load generator are C programs that need little, but they run on the same cores: with as many
processes as cores, they share with them. On a machine with many cores, one of each is soon the slowest part:
`--engines` and `--loads` start more of them. The last column says how busy the busiest load generator was; CPU per
token says what a core of one's own gives, whatever else the machine does.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.load import generator
from benchmarks.load.requests import Said, body
from benchmarks.measure.results import Result
from benchmarks.measure.session import Session, options
from benchmarks.peers import gateways

STREAMS = 64
CASE = "saturated"


def main(arguments: list[str]) -> None:
    parser = options(__doc__, 3)
    parser.set_defaults(apis="chat")
    parser.add_argument("--processes", default="1,2", help="comma-separated")
    parser.add_argument("--engines", type=int, default=1, help="engine processes of each gateway")
    parser.add_argument("--loads", type=int, default=1, help="load generators")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long is counted")
    parser.add_argument("--svg", type=Path, help="draw the result here")
    chosen = parser.parse_args(arguments)
    counts = [int(count) for count in chosen.processes.split(",")]
    many = {_name(count): count for count in counts}
    starts = [
        (name, partial(gateways.turnwire, flags=("--workers", str(count)), engines=chosen.engines))
        for name, count in many.items()
    ]
    with Session("processes", chosen, list(starts)) as session:
        request = {api: body(api, [Said("user", "Write the ledger module.")]) for api in session.apis}
        session.playbook.play("mixed", 0)
        for number, api, gateway in session.turns():
            count = many[gateway.name]
            if number == 0:
                generator.turns(gateway, api, request[api], 8 * count, 16 * count, "gateway")
            each = max(1, STREAMS * count // chosen.loads)
            load = generator.windows(gateway, api, request[api], each, 1.0, chosen.seconds, "gateway", chosen.loads)
            session.add(
                gateway,
                api,
                CASE,
                tokens_per_s=load.tokens / load.counted.seconds,
                cpu_us=load.each,
                cores=load.cpu / load.counted.seconds,
                rss_mib=load.rss,
                busiest_load=load.counted.cpu_s / (load.counted.seconds + 1.0),
            )
        result = session.finish("tokens_per_s", "tokens a second")
    if chosen.svg is not None:
        chosen.svg.write_text(picture(result), encoding="utf-8")


def _name(count: int) -> str:
    return f"{count} process" if count == 1 else f"{count} processes"


def picture(result: Result) -> str:
    """Bars of the median round, with every round as a dot."""
    cells = [cell for cell in result.cells if cell.figures.get("tokens_per_s")]
    most = max(max(cell.figures["tokens_per_s"]) for cell in cells)
    height = 90 + 44 * len(cells)
    cores, load = result.machine["cores"], result.machine["load"]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" role="img" font-family="sans-serif" '
        'font-size="13" aria-label="Tokens a second against the number of gateway processes">',
        f'<rect width="720" height="{height}" fill="#ffffff"/>',
        '<text x="20" y="26" font-size="16" font-weight="bold" fill="#222">Tokens a second, saturated</text>',
        f'<text x="20" y="46" fill="#555">{cores} cores that engine, load and other work share (load {load}); '
        "bars are medians, dots are rounds.</text>",
    ]
    for row, cell in enumerate(cells):
        values, top = sorted(cell.figures["tokens_per_s"]), 66 + 44 * row
        median = values[len(values) // 2]
        width = 460 * median / most
        dots = [130 + 460 * value / most for value in values]
        parts += [
            f'<text x="20" y="{top + 18}" fill="#222">{cell.gateway}</text>',
            f'<rect x="130" y="{top}" width="{width:.1f}" height="26" rx="2" fill="#6b8fd6"/>',
            *(f'<circle cx="{dot:.1f}" cy="{top + 13}" r="3" fill="#1d2b53"/>' for dot in dots),
            f'<text x="{dots[-1] + 10:.1f}" y="{top + 18}" fill="#222">{median:,.0f}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
