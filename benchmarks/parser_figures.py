"""The result file of `parsers`, and the table that docs/parsers.md makes of it.

Promise: every figure is the file's; one of a run that was stopped at its budget is marked.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

__all__ = ["ENGINES", "ParserCell", "ParserFigures", "parser_block"]

ENGINES = {"turnwire": "**turnwire**", "vllm": "vLLM", "sglang": "SGLang"}


class ParserCell(msgspec.Struct):
    """One parser on one text: µs of CPU per token, or why there are none. `right`: it read the call as it was written;
    `cut`: it was stopped at its budget."""

    us: float | None = None
    tokens: int = 0
    right: bool = True
    cut: bool = False
    error: str = ""


class ParserFigures(msgspec.Struct):
    """Engine, family, then the size of an argument in KB."""

    command: str
    taken: str
    machine: dict[str, str | int | float]
    versions: dict[str, str]
    table: dict[str, dict[str, dict[str, ParserCell]]]

    @property
    def sizes(self) -> list[str]:
        return list(next(iter(self.table["turnwire"].values())))

    def at(self, engine: str, size: str) -> list[float]:
        """µs a token of every family that has a figure."""
        return [sizes[size].us or 0.0 for sizes in self.table[engine].values() if size in sizes and sizes[size].us]


def parser_block(folder: Path) -> str:
    """The text between the two marks of docs/parsers.md."""
    made = msgspec.json.decode((folder / "parsers.json").read_bytes(), type=ParserFigures)
    lines = [f"| µs per token, file of | {' | '.join(f'{size} KB' for size in made.sizes)} |", "|---|---|---|---|---|"]
    for family in made.table["turnwire"]:
        for engine, shown in ENGINES.items():
            cells = made.table.get(engine, {}).get(family, {})
            if any(cell.us for cell in cells.values()):
                lines.append(f"| {family}, {shown} | {' | '.join(_shown(cells.get(size)) for size in made.sizes)} |")
    peers = ", ".join(f"{ENGINES[engine]} {version}" for engine, version in made.versions.items())
    about = f"{peers}; `+`: stopped at its budget, still growing. Taken {made.taken} on {made.machine['cores']} cores, "
    return "\n".join([*lines, "", f"{about}load {made.machine['load']} at the end."])


def _shown(cell: ParserCell | None) -> str:
    if cell is None or not cell.us:
        return "–"
    return (f"{cell.us:.0f}" if cell.us >= 10 else f"{cell.us:.2g}") + ("+" if cell.cut else "")
