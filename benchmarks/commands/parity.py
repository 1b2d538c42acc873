"""`turnwire parity` with what needs no GPU: what Codex sends, and the embedded coder on the easiest tasks.

    python -m benchmarks parity [shapes|coder] [--tasks is_even,last] [--runs 1] [--seconds 240] [--save]

`shapes` compares the requests of the real Codex with and without the gateway's catalog; no model takes part. `coder`
compares two ways to sample the embedded coder. `--save` writes the files that docs/parity.md is made from.
"""

from __future__ import annotations

import argparse

from benchmarks.parity.coder import EASIEST, compare
from benchmarks.parity.codex_shapes import compare_shapes
from turnwire.parity.page import markdown


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", nargs="?", choices=("shapes", "coder"), help="one of the two; default: both")
    parser.add_argument("--tasks", default=EASIEST, help="comma-separated names of `turnwire parity tasks`")
    parser.add_argument("--runs", type=int, default=1, help="runs of each task on each arm")
    parser.add_argument("--seconds", type=float, default=240.0, help="the longest that a run may take")
    parser.add_argument("--save", action="store_true", help="write the result files")
    chosen = parser.parse_args(arguments)
    if chosen.part in (None, "shapes"):
        compare_shapes(saved=chosen.save)
    if chosen.part in (None, "coder"):
        made = compare(chosen.tasks.split(","), chosen.runs, chosen.seconds, saved=chosen.save)
        if made.comparison is not None:
            print("\n" + markdown(made.comparison))
