"""Writes the list of folders in docs/structure.md from what each folder says of itself.

Promise: `python tools/structure.py` brings the page up to date, `--check` only says whether it is.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "structure.md"
BEGIN, END = "<!-- folders: made by tools/structure.py -->", "<!-- end of folders -->"


def folders() -> str:
    """A table row for every package under src/turnwire: what its docstring says first, and its modules by name."""
    rows = ["| folder | what lives there | modules |", "|---|---|---|"]
    base = ROOT / "src" / "turnwire"
    for init in sorted(base.rglob("__init__.py")):
        folder = init.parent.relative_to(base).as_posix()
        if folder == ".":
            continue
        said = (ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
        modules = sorted(path.stem for path in init.parent.glob("*.py") if path != init)
        rows.append(f"| `{folder}/` | {' '.join(said.split())} | {' '.join(modules)} |")
    return "\n".join(rows)


def page(text: str) -> str:
    """The page with its table made anew."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{folders()}\n{END}{after}"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    made = page(text)
    if "--check" in sys.argv:
        sys.exit("docs/structure.md is not up to date; run: python tools/structure.py" if made != text else 0)
    PAGE.write_text(made, encoding="utf-8")
