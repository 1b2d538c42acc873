"""Real clients on real templates: does each turn begin with exactly what was read and said before it?

    python -m benchmarks fidelity --templates FOLDER --tokenizers FOLDER [--clients claude,codex]
                                  [--families Qwen3,gpt-oss] [--parts task,compaction] [--save]

Each client does one task of six turns by its own shell tool: two calls at once; twice two calls with a thought between
them, where the family's format can say that; then the gateway is replaced by a new one that knows nothing but the key
of the seals; a file that quotes the family's own markup; reading that file back; an answer. Then, in a run of its own,
it compacts a conversation and goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.fidelity.cells import CLIENTS, Cell, played
from benchmarks.fidelity.compaction import compacted
from benchmarks.fidelity.families import FAMILIES
from benchmarks.installers import installer
from benchmarks.measure.results import FOLDER, today

ROOT = Path(__file__).resolve().parents[2]
FILE = FOLDER / "fidelity.json"
PARTS = ("task", "compaction")


class Table(msgspec.Struct):
    """The result file."""

    command: str
    taken: str
    clients: dict[str, str]
    table: list[Cell]


def installed() -> tuple[dict[str, Any], dict[str, str]]:
    """The pinned clients, installed if they are not, and their versions."""
    bundles = installer("clients").install()
    return bundles, {name: _version(bundles[name].folder) for name in CLIENTS}


def _version(folder: Path) -> str:
    asked = msgspec.json.decode((folder / "package.json").read_bytes())["dependencies"]
    name = next(iter(asked))
    return str(msgspec.json.decode((folder / "node_modules" / name / "package.json").read_bytes())["version"])


def main(arguments: list[str]) -> None:
    """Run every pair, print a line for each, and write the result file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks fidelity", description=__doc__.partition("\n")[0])
    parser.add_argument("--templates", type=Path, required=True, help="folder of chat templates, NAME.jinja")
    parser.add_argument("--tokenizers", type=Path, required=True, help="folder of tokenizers")
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--parts", default=",".join(PARTS), help="those that are not run keep their saved words")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/fidelity.json")
    options = parser.parse_args(arguments)
    bundles, versions = installed()
    for family in options.families.split(","):
        template, tokenizer, own = FAMILIES[family]
        for client in options.clients.split(","):
            files = options.templates / f"{template}.jinja", options.tokenizers / tokenizer
            known = next(
                (c for c in saved() if (c.family, c.client) == (family, client)), Cell(client, family, "", own)
            )
            parts = options.parts.split(",")
            cell = played(client, family, *files, own, bundles) if "task" in parts else known
            cell.compaction = compacted(client, *files, bundles) if "compaction" in parts else known.compaction
            said = [cell.parallel, cell.interleaved, cell.restart, cell.stored, cell.markup, cell.compaction]
            print(f"{family:<18} {client:<10} {cell.api:<18} {' | '.join([*said, cell.problem])}", flush=True)
            if options.save:
                save(cell, versions)


def saved() -> list[Cell]:
    """The cells of the result file."""
    return msgspec.json.decode(FILE.read_bytes(), type=Table).table if FILE.exists() else []


def save(cell: Cell, versions: dict[str, str]) -> None:
    """Put a cell into the result file; one of the same client and family is replaced."""
    key = (cell.family, cell.client)
    cells = [old for old in saved() if (old.family, old.client) != key] + [cell]
    families, clients = list(FAMILIES), list(CLIENTS)
    cells.sort(key=lambda each: (families.index(each.family), clients.index(each.client)))
    made = Table("fidelity", today(), versions, cells)
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
